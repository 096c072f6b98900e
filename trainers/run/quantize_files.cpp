// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/quantize_files.h"

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
#include "src/net/onnx/export.h"
#include "src/train/model/threads.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/quantize_inputs.h"

namespace octet {
namespace {

/// How well-known networks take their images.
struct Preset {
  Fit fit;
  double resize;  ///< the shorter side before the crop, as a multiple of the input's height; 0: none
  ChannelOrder order;
  double scale;  ///< of the values that mean and deviation are of: 1, or 255 for pixels as they are
  std::vector<double> mean, std;
};

enum class PresetName { imagenet, yolo, yolox, none };
constexpr std::array<Named<PresetName>, 4> kPresets = {{{PresetName::imagenet, "imagenet"},
                                                        {PresetName::yolo, "yolo"},
                                                        {PresetName::yolox, "yolox"},
                                                        {PresetName::none, "none"}}};

Preset preset(PresetName name) {
  switch (name) {
    case PresetName::imagenet:  // torchvision's references/classification/presets.py
      return {Fit::crop, 256.0 / 224, ChannelOrder::rgb, 1, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    case PresetName::yolo:  // Ultralytics
      return {Fit::letterbox, 0, ChannelOrder::rgb, 1, {0}, {1}};
    case PresetName::yolox:  // Megvii
      return {Fit::letterbox_corner, 0, ChannelOrder::bgr, 255, {0}, {1}};
    case PresetName::none:
      return {Fit::crop, 0, ChannelOrder::rgb, 1, {0}, {1}};
  }
  return {};
}

/// Returns one value for each channel of the input, where one is given for all.
std::vector<float> for_channels(const std::vector<double>& values, double scale, int channels, const char* option) {
  std::vector<float> result;
  for (const double value : values) {
    if (!std::isfinite(value) || (std::string_view(option) == "--std" && value <= 0))
      throw usage_error(fmt::format("{}: {} is no {}", option, value,
                                    std::string_view(option) == "--std" ? "deviation: more than 0" : "mean"));
    result.push_back(static_cast<float>(value / scale));
  }
  if (result.size() == 1) result.resize(static_cast<size_t>(channels), result.front());
  if (result.size() != static_cast<size_t>(channels))
    throw usage_error(
        fmt::format("{}: {} values for an input of {}", option, values.size(), counted(channels, "channel")));
  return result;
}

/// Fills the preprocessing for the network's input from the preset and the options that differ from it.
void set_preprocessing(const QuantizeOptions& options, const Shape& input, Preprocessing& p) {
  if (options.preset.empty() && (options.mean.empty() || options.std.empty()))
    throw usage_error(
        "how do images become the network's input? --preset imagenet (256 to 224, mean and deviation of ImageNet), "
        "yolo (letterbox, RGB, 0..1), yolox (letterbox in the corner, BGR, 0..255) or none (centre, RGB, 0..1); or "
        "--mean and --std with --resize, --fit, --order bgr, --scale 255");
  if (options.scale && *options.scale != 1 && *options.scale != 255)
    throw usage_error(fmt::format("--scale: {:g}; takes 1 or 255", *options.scale));
  const Preset from = preset(value_named(kPresets, options.preset.empty() ? "none" : options.preset, "--preset"));
  const bool plain = options.preset.empty() || options.preset == "none";
  if (options.scale && !plain && (options.mean.empty() || options.std.empty()))
    throw usage_error("--scale says what --mean and --std are of: give both, or leave --scale out");
  const double given = options.scale.value_or(from.scale), usual = plain ? given : from.scale;
  p.fit = options.fit.empty() ? from.fit : value_named(kFits, options.fit, "--fit");
  if (p.fit == Fit::tensor)
    throw usage_error(
        "--fit tensor: there is nothing to fit in ready inputs, which --tensors FILE takes without --fit");
  p.order = options.order.empty() ? from.order : value_named(kChannelOrders, options.order, "--order");
  if (input.c == 1 && options.order == "bgr")
    throw usage_error("--order bgr: the network takes images of one channel; leave it out");
  if (input.c == 1) p.order = ChannelOrder::rgb;
  p.resize = options.resize.value_or(static_cast<int>(std::lround(from.resize * std::min(input.h, input.w))));
  if (p.fit != Fit::crop) {
    if (options.resize)
      throw usage_error(
          fmt::format("--resize is the shorter side before a crop; --fit {} has none", name_in(kFits, p.fit)));
    p.resize = 0;
  }
  p.crop = p.fit == Fit::crop && input.h == input.w ? input.h : 0;
  p.even_margin = p.fit == Fit::crop;
  p.exif_orientation = options.orientation.empty() ||
                       value_named(kOrientations, options.orientation, "--orientation") == Orientation::exif;
  p.mean = for_channels(options.mean.empty() ? from.mean : options.mean, options.mean.empty() ? usual : given, input.c,
                        "--mean");
  p.std =
      for_channels(options.std.empty() ? from.std : options.std, options.std.empty() ? usual : given, input.c, "--std");
}

/// Returns how the outputs of a network of preset yolox or yolo become boxes; none, which is told, if they are not
/// those of such a head.
std::optional<BoxHead> box_head(const QuantizeOptions& options, const Graph& graph) {
  if (options.preset != "yolox" && options.preset != "yolo") return std::nullopt;
  try {
    BoxHead head = find_box_head(graph, options.preset == "yolox" ? BoxHeadKind::yolox : BoxHeadKind::yolo_dfl);
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
  for (const auto& [name, given] :
       {std::pair{"--preset", !options.preset.empty()}, std::pair{"--fit", !options.fit.empty()},
        std::pair{"--order", !options.order.empty()}, std::pair{"--orientation", !options.orientation.empty()},
        std::pair{"--mean", !options.mean.empty()}, std::pair{"--std", !options.std.empty()},
        std::pair{"--scale", options.scale.has_value()}, std::pair{"--resize", options.resize.has_value()}})
    if (given)
      throw usage_error(
          fmt::format("{}: is for images; --tensors are what the network reads, already fitted and "
                      "normalized: leave it out",
                      name));
}

/// Runs the work of a function and replaces recipe keys in its refusals by the options of this command.
template <typename Work>
auto by_options(const Work& work) try {
  return work();
} catch (const Error& error) {
  std::string text = error.what();
  for (const auto& [key, option] : {std::pair{"set data.resize", "--resize or --fit letterbox fits it"},
                                    std::pair{"a recipe's data.image_size gives it", "--image-size gives it"},
                                    std::pair{"set equalize: false", "take another --repair"}})
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
    if (!request.images.empty()) set_preprocessing(options, network.graph.nodes.front().shape, request.preprocessing);
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

SearchedNetwork search_network(QuantizeOptions& options, const BitSearchOptions& search,
                               const std::string& device_name) {
  if (options.method == "auto")
    throw usage_error(
        "--method auto: is for one network, not for each plan of a search; name another, or leave it out");
  return on_network(options, device_name, [&](FloatNetwork network, at::Device device) {
    auto [run, tensors, weights] = open_unlabelled(options.request, std::move(network), device);
    run.recipe.calibrate.batch_size = calibration_batch(run);
    run.recipe.calibrate.method = options.request.method;
    const std::vector<at::Tensor> images = input_batches(run, run.data.validation);
    require_differences(images, /*are_images=*/!tensors);
    SearchedNetwork result{search_bits_unlabelled(run, weights, search, images), run.data.validation.size(), {}, {}};
    if (!result.found.chosen) return result;
    run.recipe = with_plan(run.recipe, search, result.found.plans[*result.found.chosen].layers);
    const QuantizedModel model = calibrated(run, weights);
    result.chosen = to_int8(run, model);
    result.chosen->recipe_hash.clear();  // there is no recipe
    result.comparison = prove(run, model, *result.chosen);
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
    write_file_atomically(options.onnx,
                          write_qdq(result.graph, {.profile = profile, .own_names = true}, nullptr, &notes));
    for (const std::string& note : notes) say(fmt::format("{}: {}", options.onnx, note));
  }
  return result;
}

}  // namespace octet
