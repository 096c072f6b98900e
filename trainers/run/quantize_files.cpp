// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/data/image_folder.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/train/model/threads.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/quantize.h"

namespace octet {
namespace {

/// Returns how the outputs of a network of preset yolox or yolo become boxes; none, which is told, if they are not
/// those of such a head.
std::optional<BoxHead> box_head(const QuantizeOptions& options, const Graph& graph) {
  const std::optional<BoxHeadKind> kind = box_head_of(options.image);
  if (!kind) return std::nullopt;
  try {
    BoxHead head = find_box_head(graph, *kind);
    std::vector<int> strides;
    for (const BoxHead::Level& level : head.levels) strides.push_back(level.stride);
    say(fmt::format("boxes: head {}, strides {}", name_in(kBoxHeadKinds, head.kind), fmt::join(strides, ", ")));
    return head;
  } catch (const Error& error) {
    say(fmt::format("note: the checkpoint will not say how outputs become boxes: {}", error.what()));
    return std::nullopt;
  }
}

/// Returns the names of the file, one for each class of the boxes or of a network of one output.
std::vector<std::string> class_names(const QuantizeOptions& options, const Graph& graph,
                                     const std::optional<BoxHead>& boxes) {
  if (options.classes_file.empty()) return {};
  std::vector<std::string> names = read_classes(options.classes_file);
  if (!boxes && graph.outputs.size() > 1)
    throw usage_error(fmt::format("--classes-file {}: the network has {} outputs, and none is known to give classes",
                                  options.classes_file, graph.outputs.size()));
  const int output = boxes ? boxes->levels.front().classes : 0;
  const int classes = graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(output)])].shape.c;
  if (names.size() != static_cast<size_t>(classes))
    throw usage_error(fmt::format("--classes-file {}: {}, the network has {}", options.classes_file,
                                  names.size() == 1 ? "1 class" : fmt::format("{} classes", names.size()), classes));
  return names;
}

/// Returns FloatFile::ends but for names and preprocessing.
Int8Graph ends_of(const Graph& graph) {
  const Node& input = graph.nodes.front();
  Int8Graph ends{.name = graph.name, .nodes = {{.name = input.name, .shape = input.shape, .float_output = true}}};
  for (const int output : graph.outputs) {
    const Node& node = graph.nodes[static_cast<size_t>(output)];
    ends.outputs.push_back(static_cast<int>(ends.nodes.size()));
    ends.nodes.push_back(
        {.name = node.name, .op = Int8Op::requantize, .inputs = {0}, .shape = node.shape, .float_output = true});
  }
  return ends;
}

/// Throws for files to be written that exist, that are one and the same, or that the command reads.
void require_free(const std::vector<std::string>& written, const QuantizeOptions& options) {
  std::vector<std::filesystem::path> taken;
  for (const std::string& read :
       {options.request.network, options.request.weights, options.request.tensors, options.classes_file})
    taken.push_back(std::filesystem::weakly_canonical(read));
  for (const std::string& file : written) {
    if (file.empty()) continue;
    require_place_for(file);
    const auto place = std::filesystem::weakly_canonical(file);
    if (std::find(taken.begin(), taken.end(), place) != taken.end())
      throw usage_error(fmt::format("{} is read by this command, or written twice: name another file", file));
    taken.push_back(place);
    if (!options.force && std::filesystem::exists(file))
      throw usage_error(fmt::format("{} exists and stays as it is: name another file, or say --force", file));
  }
}

/// Throws unless the request has one source of inputs, and options of images have images.
void require_one_source(const QuantizeOptions& options) {
  const QuantizeRequest& request = options.request;
  const bool ready = !request.tensors.empty() || !request.inputs.empty();
  if (request.images.empty() && !ready)
    throw usage_error(
        "what shall it be calibrated on? --images FOLDER with --preset, or --tensors FILE with inputs that are ready");
  if (!ready) return;
  if (!request.images.empty())
    throw usage_error("--images and --tensors: the network is calibrated on one of them; leave the other out");
  if (const std::string name = options.image.first_given(); !name.empty())
    throw usage_error(
        fmt::format("{}: is for images; --tensors are what the network reads, already fitted and normalized: leave it "
                    "out",
                    name));
}

/// Runs the work of a function and replaces recipe keys in its refusals by the options of this command.
template <typename Work>
auto by_options(const Work& work) try {
  return work();
} catch (const Error& error) {
  std::string text = error.what();
  for (const auto& [key, option] :
       {std::pair{"a recipe's data.image_size gives it", "--image-size gives it"},
        std::pair{"set equalize: false", "take another --repair"}, std::pair{"phase calibrate: ", ""}})
    if (const size_t at = text.find(key); at != std::string::npos)
      text.replace(at, std::string_view(key).size(), option);
  throw Error(error.code(), text);
}

/// Returns work(network, device) for the float network of the options, whose request is then complete.
template <typename Work>
auto on_network(QuantizeOptions& options, const std::string& device_name, const Work& work) {
  QuantizeRequest& request = options.request;
  require_one_source(options);
  require_free({options.out, options.onnx, options.html, options.svg}, options);
  if (options.percentile && options.method != "percentile")
    throw usage_error("--percentile: belongs to --method percentile; add that, or leave it out");
  request.calibrate.percentile = options.percentile.value_or(request.calibrate.percentile);
  if (options.method != "auto") request.method = value_named(kCalibrationMethods, options.method, "--method");
  request.repair = value_named(kRepairs, options.repair, "--repair");
  request.quant.activation = value_named(kActivationSchemes, options.activation, "--activation");
  const at::Device device = choose_device(device_name);
  const OwnCores own_cores(device.is_cpu());
  say(fmt::format("device: {}", describe_device(device)));
  return by_options([&] {
    FloatNetwork network = open_network(request);
    if (!request.images.empty())
      request.preprocessing = preprocessing_of(options.image, network.graph.nodes.front().shape);
    return work(std::move(network), device);
  });
}

}  // namespace

Quantized quantize_network(QuantizeOptions& options, const std::string& device_name) {
  return on_network(options, device_name, [&](FloatNetwork network, at::Device device) {
    const std::optional<BoxHead> boxes = box_head(options, network.graph);
    const std::vector<std::string> names = class_names(options, network.graph, boxes);
    Quantized result = quantize(options.request, std::move(network), device);
    result.graph.boxes = boxes;
    result.graph.class_names = names;
    return result;
  });
}

FloatFile open_float_file(QuantizeOptions options, bool boxes, const std::string& device_name) {
  return on_network(options, device_name, [&](FloatNetwork network, at::Device device) {
    const std::optional<BoxHeadKind> kind = box_head_of(options.image);
    if (boxes && !kind)
      throw usage_error(
          "--boxes: --preset yolox or yolo says which detector's head the outputs of a float network are");
    FloatFile file{ends_of(network.graph), options.request.outputs, network.unlike, multiply_adds(network.graph),
                   nullptr};
    if (boxes) file.ends.boxes = find_box_head(network.graph, *kind);
    file.ends.preprocessing = options.request.preprocessing;
    if (!network.graph.file_outputs.empty()) name_outputs(file.ends, network.graph.file_outputs);
    file.program = unquantized_program(options.request, std::move(network), device);
    return file;
  });
}

SearchedNetwork search_network(QuantizeOptions& options, const BitSearchOptions& search,
                               const std::string& device_name) {
  if (options.method == "auto")
    throw usage_error(
        "--method auto: is for one network, not for each plan of a search; name another, or leave it out");
  return on_network(options, device_name, [&](FloatNetwork network, at::Device device) {
    SearchedNetwork result;
    {
      auto [run, tensors, weights] = open_unlabelled(options.request, network, device);
      run.recipe.calibrate.batch_size = calibration_batch(run);
      run.recipe.calibrate.method = options.request.method;
      const std::vector<at::Tensor> images = input_batches(run, run.data.validation);
      require_differences(images, /*are_images=*/!tensors);
      result.found = search_bits_unlabelled(run, weights, search, images);
      result.images = run.data.validation.size();
      if (!result.found.chosen) return result;
      options.request.quant = with_plan(run.recipe, search, result.found.plans[*result.found.chosen].layers).quant;
    }
    result.chosen = quantize(options.request, std::move(network), device);
    return result;
  });
}

Quantized quantize_files(QuantizeOptions& options, const std::string& device) {
  if (options.out.empty())
    options.out = std::filesystem::path(options.request.network).stem().string() + ".int8.safetensors";
  if (options.profile && options.onnx.empty())
    throw usage_error("--profile: is how --onnx FILE is written; add that, or leave it out");
  const OnnxProfile profile = value_named(kOnnxProfiles, options.profile.value_or("onnxruntime"), "--profile");
  if (!options.onnx.empty() && profile == OnnxProfile::tensorrt && options.activation != "symmetric_s8")
    throw usage_error("--profile tensorrt takes symmetric codes only: add --activation symmetric_s8");
  Quantized result = quantize_network(options, device);
  write_checkpoint(options.out, result.graph);
  if (!options.onnx.empty()) {
    std::vector<std::string> notes;
    write_file_atomically(options.onnx, write_qdq(result.graph, {.profile = profile}, nullptr, &notes));
    for (const std::string& note : notes) say(fmt::format("{}: {}", options.onnx, note));
  }
  return result;
}

}  // namespace octet
