// SPDX-License-Identifier: Apache-2.0
// octet quantize NETWORK --images FOLDER: int8 of a float network by images or ready inputs alone, and what that costs.
#include "tools/octet/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/names.h"
#include "src/base/threads.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "tools/octet/measured_run.h"
#include "trainers/gpu.h"

namespace octet::cli {
namespace {

ExitCode quantize(const Common& common, QuantizeOptions options) {
  options.out = common.out;
  const Quantized result = quantize_files(options, common.device);
  if (!options.html.empty()) write_file_atomically(options.html, quantized_page(result, options.request.network));
  print_result(common, quantized_text(result, options.out), [&] { return quantized_json(result, options.out); });
  return result.comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

}  // namespace

bool is_network(const std::string& who, const Common& common, const std::string& target, const QuantizeOptions& network,
                bool options_given) {
  const std::vector<std::string_view>& zoo = model_names();
  const bool exists = std::filesystem::exists(target), images = !network.request.images.empty();
  const bool of_zoo = !exists && std::find(zoo.begin(), zoo.end(), target) != zoo.end();
  if (!of_zoo && !target.ends_with(".onnx")) {
    if (!images && !options_given) return false;
    if (!exists)
      throw usage_error(fmt::format("{}: no such file or run, and no network of the zoo is called so: it has {}",
                                    target, fmt::join(zoo, ", ")));
    throw usage_error(
        fmt::format("{}: a recipe or run says itself which images are read and how it is quantized; leave --images "
                    "FOLDER out, and options that say it for an .onnx file",
                    who));
  }
  if (!common.set.empty()) throw usage_error(fmt::format("{}: --set is for a recipe or run; leave it out", who));
  if (!images)
    throw usage_error(fmt::format("{}: without --images FOLDER expected a recipe or run, found {}", target,
                                  of_zoo ? "a network of the zoo; add --images" : describe_onnx(target)));
  return true;
}

ExitCode analyze_network(const Common& common, QuantizeOptions options) {
  options.force = true;
  options.request.alone = std::numeric_limits<int>::max();
  const Quantized result = quantize_network(options, common.device);
  const std::string images = counted(static_cast<long>(result.measured_on), "image");
  print_result(
      common,
      fmt::format("{}\n{}{}\n{}\nmeasured on {} that are not calibrated on\n", outputs_table(result).render(),
                  layers_table(result, result.layers.size()).render(), kLegend, lost_note(result), images),
      [&] {
        return json_text(
            {{"images", result.measured_on}, {"outputs", outputs_json(result)}, {"layers", layers_json(result)}});
      });
  if (!options.html.empty()) write_file_atomically(options.html, quantized_page(result, options.request.network));
  return ExitCode::ok;
}

void add_network_options(CLI::App& app, QuantizeOptions& options) {
  QuantizeRequest& request = options.request;
  add_image_options(app, options.image);
  app.add_option("--weights", request.weights, "of a network of the zoo: .safetensors, .pth");
  app.add_option("--classes", request.classes, "of a network of the zoo (default: 1000)")
      ->check(CLI::Range(1, 1000000));
  add_onnx_options(app, request.outputs, request.image_size);
  app.add_option("--method", options.method,
                 "ranges: auto (by what the outputs lose), mse, minmax, percentile, entropy");
  app.add_option("--percentile", options.percentile, "with --method percentile (default: 99.99)")
      ->check(CLI::Range(50.0, 100.0));
  app.add_option("--activation", options.activation, "affine_u8 (default), unsigned_u8, symmetric_s8");
  app.add_option("--seed", request.seed, "which images calibrate, choose and measure (default: 1)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", request.threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
}

void add_repair(CLI::App& app, QuantizeOptions& options) {
  app.add_option("--repair", options.repair, "none, bias (default), fast, full: tried, and taken where they pay");
}

void add_quantize(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<QuantizeOptions>();
  QuantizeRequest& request = options->request;
  CLI::App* command = app.add_subcommand("quantize", "int8 of a float network by images alone: no labels, no training");
  command->add_option("NETWORK", request.network, "an .onnx file, or a network of the zoo with --weights")->required();
  command->add_option("--images", request.images, "folders (with all within), .tar, files or patterns; no labels");
  command->add_option("--tensors", request.tensors,
                      "in place of images: .npz, .npy or .safetensors with the network's inputs, [N, C, H, W]");
  command->add_option("--limit", request.limit, "at most so many images, evenly spaced (default: 300)")
      ->check(CLI::Range(3, 1000000));
  add_network_options(*command, *options);
  add_repair(*command, *options);
  command->add_option("--classes-file", options->classes_file, "names of the classes, one a line, in their order");
  command->add_option("--onnx", options->onnx, "also write the int8 network as ONNX (Q/DQ)");
  command->add_option("--profile", options->profile, "for onnxruntime (default), openvino, tensorrt, int32_bias");
  command->add_option("--html", options->html, "write a page of what it costs into this file");
  command->add_flag("--force", options->force, "replace files that exist");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return quantize(common, *options); }); };
  });
}

}  // namespace octet::cli
