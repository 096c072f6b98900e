// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/quantize.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/data/image_files.h"
#include "src/train/model/threads.h"
#include "src/train/proof/deployed_network.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

constexpr size_t kFewImages = 10;  // below, one image in three is held back for each part, which measures little

/// Returns at most `limit` of the images, evenly spaced, without those that cannot be read or are too small for the
/// transform, which are told.
std::vector<size_t> readable(const ImageList& images, size_t limit, const Transform& transform) {
  std::vector<size_t> all(images.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const std::vector<size_t> chosen = evenly_spaced(all, std::min(limit, all.size()));
  std::vector<std::string> faults(chosen.size());
  share_among_threads(static_cast<int64_t>(chosen.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !interrupted(); ++i) {
      try {
        const Image image = images.read(chosen[i]);
        check_size({image.height, image.width}, transform, /*training=*/false);
      } catch (const Error& error) {
        if (error.code() != ExitCode::data) throw;
        const std::string name = images.describe(chosen[i]), what = error.what();
        faults[i] = what.starts_with(name) ? what : name + ": " + what;
      }
    }
  });
  throw_if_interrupted();
  std::vector<size_t> usable;
  std::string first;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (faults[i].empty()) usable.push_back(chosen[i]);
    if (first.empty()) first = faults[i];
  }
  const long bad = static_cast<long>(chosen.size() - usable.size());
  if (usable.empty()) throw data_error(fmt::format("none of {} can be used: {}", counted(bad, "image"), first));
  if (bad > 0) say(fmt::format("note: {} cannot be used and left out: {}", counted(bad, "image"), first));
  return usable;
}

/// Deals the images out at random, so that those of one folder do not come into one part. one: "image" or "input".
void deal(std::vector<size_t> images, const char* one, uint64_t seed, RunData& data) {
  if (images.size() < 3)
    throw data_error(
        fmt::format("{}: some are calibrated on, and others show what is lost; give 10 at least, 100 to "
                    "300 are usual",
                    counted(static_cast<long>(images.size()), one)));
  if (images.size() < kFewImages)
    say(fmt::format("note: {} only: ranges and what is measured depend on chance; 100 to 300 are usual",
                    counted(static_cast<long>(images.size()), one)));
  Random({seed, 41}).shuffle(images);
  const size_t held = std::clamp<size_t>(images.size() / 5, 1, kHeldBack);
  const auto begin = images.begin();
  const auto part = [&](size_t from, size_t to) {
    std::vector<size_t> indices(begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
    std::sort(indices.begin(), indices.end());
    return indices;
  };
  data.validation = part(0, held);
  data.test = part(held, 2 * held);
  data.calibration = data.train = part(2 * held, images.size());
}

/// Opens the images of the request and deals them out.
void open_images(const QuantizeRequest& request, Run& run) {
  const Shape& input = run.graph.nodes.front().shape;
  if (input.c != 1 && input.c != 3)
    throw usage_error(
        fmt::format("{}: takes inputs of {} channels; images have 1 or 3, and --tensors FILE takes any number",
                    request.network, input.c));
  run.preprocessing = request.preprocessing;
  if (run.preprocessing.mean.size() != static_cast<size_t>(input.c) ||
      run.preprocessing.std.size() != static_cast<size_t>(input.c))
    throw usage_error(fmt::format("{}: takes {} channels, the preprocessing has {} means and {} deviations",
                                  request.network, input.c, run.preprocessing.mean.size(),
                                  run.preprocessing.std.size()));
  const auto images = std::make_shared<ImageList>(
      request.images, input.c, request.preprocessing.exif_orientation ? Orientation::exif : Orientation::as_stored);
  for (const std::string& note : images->notes()) say("note: " + note);
  RunData& data = run.data;
  data.train_set = data.validation_set = data.test_set = images;
  data.evaluation_transform = data.train_transform = evaluation_transform(input, run.preprocessing);
  check_transform(data.evaluation_transform);
  data.mean = run.preprocessing.mean;
  data.std = run.preprocessing.std;
  deal(readable(*images, static_cast<size_t>(request.limit), data.evaluation_transform), "image", request.seed, data);
  for (const std::string& note : check_images(data)) say("note: " + note);
}

TensorData ready_inputs(const QuantizeRequest& request, const Node& input) {
  if (request.inputs.empty()) return read_input_tensor(request.tensors, input.name);
  const Shape& shape = input.shape;
  const auto elements = static_cast<size_t>(shape.elements());
  if (request.inputs.size() % elements != 0)
    throw data_error(fmt::format("inputs: {} values are no whole number of inputs of {} x {} x {}",
                                 request.inputs.size(), shape.c, shape.h, shape.w));
  return float_tensor({static_cast<int64_t>(request.inputs.size() / elements), shape.c, shape.h, shape.w},
                      request.inputs.data());
}

/// Takes the ready inputs of the request in place of images, and returns them.
std::shared_ptr<InputTensors> open_tensors(const QuantizeRequest& request, Run& run) {
  const Node& input = run.graph.nodes.front();
  auto tensors = std::make_shared<InputTensors>(ready_inputs(request, input),
                                                request.inputs.empty() ? request.tensors : "inputs", input.shape);
  run.preprocessing = pixels_are_codes(QParams(), input.shape.c);  // until the input has its codes
  RunData& data = run.data;
  data.train_set = data.validation_set = data.test_set = tensors;
  data.evaluation_transform = data.train_transform = evaluation_transform(input.shape, run.preprocessing);
  std::vector<size_t> all(tensors->size());
  std::iota(all.begin(), all.end(), size_t{0});
  deal(evenly_spaced(all, std::min(all.size(), static_cast<size_t>(request.limit))), "input", request.seed, data);
  return tensors;
}

}  // namespace

int calibration_batch(const Run& run) {
  if (!run.device.is_cpu()) return 64;
  constexpr int64_t kMost = 8, kBytes = 384 << 20;
  int64_t bytes = 0;  // of one image's values
  for (const Node& node : run.graph.nodes)
    if (has_weight(node.op)) bytes += 4 * node.shape.elements();
  return static_cast<int>(std::clamp<int64_t>(kBytes / std::max<int64_t>(1, bytes), 1, kMost));
}

std::shared_ptr<InputTensors> open_inputs(const QuantizeRequest& request, Run& run) {
  if (request.images.empty()) return open_tensors(request, run);
  open_images(request, run);
  return nullptr;
}

void for_input_batches(const Run& run, const std::vector<size_t>& indices,
                       const std::function<void(const at::Tensor& x)>& take) {
  for_inputs(run.data, *run.data.train_set, indices, calibration_batch(run), run.device, [&](const at::Tensor& x) {
    take(x);
    throw_if_interrupted();
  });
}

std::vector<at::Tensor> input_batches(const Run& run, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> result;
  for_input_batches(run, indices, [&](const at::Tensor& x) { result.push_back(x); });
  return result;
}

void require_differences(const std::vector<at::Tensor>& batches, bool are_images) {
  const at::Tensor first = batches.front()[0];
  bool plain = are_images, equal = true;  // a ready input may be a vector, which is one value a channel
  for (const at::Tensor& batch : batches) {
    const at::Tensor flat = batch.flatten(2);
    plain = plain && flat.amin(2).eq(flat.amax(2)).all().item<bool>();
    equal = equal && batch.eq(first).all().item<bool>();
  }
  const bool several = batches.size() > 1 || batches.front().size(0) > 1;
  if (plain || (equal && several))
    throw data_error(fmt::format("{}s are the same: there is nothing to calibrate on",
                                 are_images ? "every image is of one colour, or all image" : "all input"));
}

}  // namespace octet
