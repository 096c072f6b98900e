// SPDX-License-Identifier: Apache-2.0
// octet compare NET.onnx --against onnxruntime: is the float network that octet reads in the file the one that another
// runtime reads? Output by output, since float sums have no codes that could be equal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/data/image_files.h"
#include "src/data/loader.h"
#include "src/data/transform.h"
#include "src/eval/metrics.h"
#include "src/net/onnx/onnx.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/onnx_runtime.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

constexpr int kFloatBatch = 8, kFloatPictures = 16;  // unless told otherwise

/// How a runtime's output differs from octet's.
struct OutputDifference {
  double signal = 0, noise = 0;       ///< sums of squares: of octet's values, and of what the runtime's differ by
  double largest = 0, magnitude = 0;  ///< largest |difference|, largest |value| of octet's
  long answers = 0, same = 0;         ///< pixels or images, and how many have the same largest channel
  void add(std::span<const float> octets, std::span<const float> others, size_t channels) {
    for (size_t i = 0; i < octets.size(); ++i) {
      const double value = octets[i], difference = std::abs(value - others[i]);
      signal += value * value;
      noise += difference * difference;
      largest = difference > largest || std::isnan(difference) ? difference : largest;
      magnitude = std::max(magnitude, std::abs(value));
    }
    for (size_t i = 0; i < octets.size(); i += channels, ++answers)
      same += arg_max(octets.subspan(i, channels)) == arg_max(others.subspan(i, channels));
  }

  double sqnr_db() const { return 10 * std::log10(signal / noise); }
};

std::span<const float> floats_of(const std::vector<uint8_t>& bytes, size_t count) {
  return {reinterpret_cast<const float*>(bytes.data()), count};
}

/// Returns the differences by runtime and output.
std::vector<std::vector<OutputDifference>> differences(const FloatFile& file, const MeasureOptions& options,
                                                       const std::vector<std::string>& against, size_t& images) {
  const ShownCodes model = show_outputs(options.run, file.outputs);
  std::vector<std::unique_ptr<Program>> runtimes;
  for (const std::string& name : against)
    runtimes.push_back(start_onnx_runtime(file.ends, model, name, options.threads.value_or(0)));
  const ImageList pictures(options.pictures, file.ends.input_shape().c, orientation_of(file.ends));
  for (const std::string& note : pictures.notes()) say("note: " + note);
  std::vector<size_t> chosen(
      std::min<size_t>(pictures.size(), static_cast<size_t>(options.images > 0 ? options.images : kFloatPictures)));
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  images = chosen.size();
  Loader loader(pictures, chosen, evaluation_transform(file.ends.input_shape(), file.ends.preprocessing),
                {.batch_size = kFloatBatch});
  const OutputBuffers ours(file.ends, kFloatBatch), theirs(file.ends, kFloatBatch);
  std::vector<std::vector<OutputDifference>> found(runtimes.size(),
                                                   std::vector<OutputDifference>(file.ends.outputs.size()));
  Progress progress("compare", static_cast<long>(chosen.size()), "images");
  long done = 0;
  for (Batch batch; loader.next(batch); progress.update(done += batch.size)) {
    file.program->run(batch.images.data(), batch.size, ours.memory());
    for (size_t r = 0; r < runtimes.size(); ++r) {
      runtimes[r]->run(batch.images.data(), batch.size, theirs.memory());
      for (size_t o = 0; o < found[r].size(); ++o) {
        const Shape& shape = file.ends.nodes[static_cast<size_t>(file.ends.outputs[o])].shape;
        const auto count = static_cast<size_t>(shape.elements()) * static_cast<size_t>(batch.size);
        found[r][o].add(floats_of(ours[o], count), floats_of(theirs[o], count), static_cast<size_t>(shape.c));
      }
    }
    throw_if_interrupted();
  }
  return found;
}

}  // namespace

ExitCode compare_float(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  if (against.empty())
    throw usage_error(fmt::format(
        "{}: is a float network: it has no codes, and no engine runs it, so there is nothing to prove; --against "
        "onnxruntime shows whether ONNX Runtime reads the same network in it, octet quantize makes int8 of it",
        options.run));
  const FloatFile file = float_file(common, options, /*boxes=*/false);
  if (!file.unlike.empty())
    throw usage_error(fmt::format(
        "{}: {}, so its values are not octet's: --against compares what is the same in both; {}", options.run,
        file.unlike, "end the network before that by --outputs, or export it with [N, C, H, W] from end to end"));
  size_t images = 0;
  const auto found = differences(file, options, against, images);
  TextTable table({{"output", Align::left},
                   {"shape", Align::left},
                   {"against", Align::left},
                   {"signal to difference"},
                   {"largest difference"},
                   {"largest value"},
                   {"same class"}});
  nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
  for (size_t r = 0; r < against.size(); ++r)
    for (size_t o = 0; o < found[r].size(); ++o) {
      const OutputDifference& d = found[r][o];
      const Int8Node& node = file.ends.nodes[static_cast<size_t>(file.ends.outputs[o])];
      const double same = static_cast<double>(d.same) / static_cast<double>(d.answers);
      table.add_row({printable(node.name), fmt::format("{}x{}x{}", node.shape.c, node.shape.h, node.shape.w),
                     against[r], decibels(d.sqnr_db()), fmt::format("{:.3g}", d.largest),
                     fmt::format("{:.3g}", d.magnitude), node.shape.c > 1 ? percent(same, 1) : ""});
      outputs.push_back({{"output", node.name},
                         {"against", against[r]},
                         {"signal_to_difference_db", d.sqnr_db()},
                         {"largest_difference", d.largest},
                         {"largest_value", d.magnitude},
                         {"same_class", same}});
    }
  print_result(common,
               fmt::format("the float network as octet reads and LibTorch computes it, over {}\n\n{}",
                           counted(static_cast<long>(images), "image"), table.render()),
               [&] {
                 return nlohmann::ordered_json{{"network", options.run}, {"images", images}, {"outputs", outputs}}.dump(
                     2, ' ', false, nlohmann::json::error_handler_t::replace);
               });
  return ExitCode::ok;
}

}  // namespace octet::cli
