// SPDX-License-Identifier: Apache-2.0
// octet quantize NETWORK --images FOLDER: int8 of a float network by images alone, and what that costs.
#include "tools/octet/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/export.h"
#include "src/report/html.h"
#include "src/train/model/threads.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"

namespace octet::cli {
namespace {

constexpr size_t kShownLayers = 8;

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
        "yolo "
        "(letterbox, RGB, 0..1), yolox (letterbox in the corner, BGR, 0..255) or none (centre, RGB, 0..1); or --mean "
        "and "
        "--std with --resize, --fit, --order bgr, --scale 255");
  const Preset from = preset(value_named(kPresets, options.preset.empty() ? "none" : options.preset, "--preset"));
  const bool plain = options.preset.empty() || options.preset == "none";
  if (options.scale && !plain && (options.mean.empty() || options.std.empty()))
    throw usage_error("--scale says what --mean and --std are of: give both, or leave --scale out");
  const double given = options.scale.value_or(from.scale), usual = plain ? given : from.scale;
  p.fit = options.fit.empty() ? from.fit : value_named(kFits, options.fit, "--fit");
  p.order = options.order.empty() ? from.order : value_named(kChannelOrders, options.order, "--order");
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
  p.exif_orientation = value_named(kOrientations, options.orientation, "--orientation") == Orientation::exif;
  p.mean = for_channels(options.mean.empty() ? from.mean : options.mean, options.mean.empty() ? usual : given, input.c,
                        "--mean");
  p.std =
      for_channels(options.std.empty() ? from.std : options.std, options.std.empty() ? usual : given, input.c, "--std");
}

std::string method_text(const RangeMethod& ranges) {
  const std::string name(name_in(kCalibrationMethods, ranges.method));
  return ranges.method == CalibrationMethod::percentile ? fmt::format("{} {:g}", name, ranges.percentile) : name;
}

/// Returns the layers that were measured alone, the one that costs most first.
std::vector<LayerCost> worst_layers(const Quantized& result) {
  std::vector<LayerCost> layers;
  for (const LayerCost& layer : result.layers)
    if (layer.alone_lost) layers.push_back(layer);
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerCost& a, const LayerCost& b) { return *a.alone_lost > *b.alone_lost; });
  return layers;
}

TextTable ranges_table(const Quantized& result) {
  TextTable table({{"ranges", Align::left}, {"lost"}});
  for (const ChosenRanges::Trial& trial : result.ranges.trials)
    table.add_row({method_text(trial.ranges), percent(trial.lost)});
  return table;
}

std::string ranges_sentence(const Quantized& result) {
  const ChosenRanges& ranges = result.ranges;
  std::string text = fmt::format("ranges: {}", method_text(ranges.trials[ranges.chosen].ranges));
  if (!ranges.edges.empty())
    text += fmt::format(", for {} another: {} lost", counted(static_cast<long>(ranges.edges.size()), "edge"),
                        percent(ranges.lost));
  return text;
}

TextTable outputs_table(const Quantized& result) {
  TextTable table({{"output", Align::left}, {"shape", Align::left}, {"SQNR"}, {"lost"}, {"same class"}});
  for (size_t o = 0; o < result.outputs.size(); ++o) {
    const OutputError& error = result.outputs[o];
    const Shape& shape = result.graph.nodes[result.graph.outputs[o]].shape;
    table.add_row({printable(error.name), fmt::format("{}x{}x{}", shape.c, shape.h, shape.w), decibels(error.sqnr_db),
                   percent(error.lost), shape.c > 1 ? percent(error.agreement, 1) : ""});
  }
  return table;
}

TextTable layers_table(const Quantized& result, size_t most) {
  TextTable table({{"layers that cost most", Align::left}, {"op", Align::left}, {"alone lost"}, {"its output"}});
  std::vector<LayerCost> layers = worst_layers(result);
  layers.resize(std::min(layers.size(), most));
  for (const LayerCost& layer : layers)
    table.add_row({printable(layer.name), layer.op, percent(*layer.alone_lost), decibels(layer.sqnr_db)});
  return table;
}

constexpr const char* kLegend =
    "lost: noise / (noise + signal) of an output, mean over images; signal: what differs from the output's mean";

std::string text(const Quantized& result, const std::string& out) {
  std::string body =
      fmt::format("{} calibrated on, {} chose, {} measured\n\n",
                  counted(static_cast<long>(result.calibrated_on), "image"), result.chosen_on, result.measured_on);
  if (result.ranges.trials.size() > 1) body += ranges_table(result).render() + ranges_sentence(result) + "\n\n";
  if (!result.repairs.empty()) {
    TextTable repairs({{"repairs", Align::left}, {"lost"}});
    for (const Quantized::RepairTrial& trial : result.repairs)
      repairs.add_row({trial.name, trial.refused.empty() ? percent(trial.lost) : "not possible"});
    body += repairs.render() + fmt::format("taken: {}\n\n", result.repairs[result.repaired].name);
  }
  body += outputs_table(result).render() + "\n" + layers_table(result, kShownLayers).render() + kLegend;
  body += fmt::format("\n\nproof: {}\n", verdict(result.comparison));
  const auto bytes = static_cast<double>(std::filesystem::file_size(out));
  return body + fmt::format("wrote {}: {}; the float weights: {}", out, human_bytes(bytes),
                            human_bytes(static_cast<double>(result.float_bytes)));
}

using Json = nlohmann::ordered_json;

Json outputs_json(const Quantized& result) {
  Json outputs = Json::array();
  for (const OutputError& o : result.outputs)
    outputs.push_back({{"output", o.name}, {"sqnr_db", o.sqnr_db}, {"lost", o.lost}, {"same_class", o.agreement}});
  return outputs;
}

Json layers_json(const Quantized& result) {
  Json layers = Json::array();
  for (const LayerCost& l : result.layers)
    layers.push_back({{"layer", l.name},
                      {"op", l.op},
                      {"sqnr_db", l.sqnr_db},
                      {"alone_lost", l.alone_lost ? Json(*l.alone_lost) : Json(nullptr)}});
  return layers;
}

std::string text_of(const Json& document) { return document.dump(2, ' ', false, Json::error_handler_t::replace); }

std::string json(const Quantized& result, const std::string& out) {
  Json trials = Json::array(), edges = Json::array(), repairs = Json::array();
  for (const auto& t : result.ranges.trials) trials.push_back({{"ranges", method_text(t.ranges)}, {"lost", t.lost}});
  for (const auto& e : result.ranges.edges)
    edges.push_back({{"node", e.node}, {"ranges", method_text(e.ranges)}, {"scale", e.after}, {"before", e.before}});
  for (const auto& r : result.repairs)
    repairs.push_back({{"repairs", r.name},
                       {"lost", r.refused.empty() ? Json(r.lost) : Json(nullptr)},
                       {"refused", r.refused.empty() ? Json(nullptr) : Json(r.refused)}});
  return text_of(
      {{"checkpoint", out},
       {"images",
        {{"calibrated", result.calibrated_on}, {"chosen", result.chosen_on}, {"measured", result.measured_on}}},
       {"ranges", method_text(result.ranges.trials[result.ranges.chosen].ranges)},
       {"trials", trials},
       {"other_edges", edges},
       {"repairs", repairs},
       {"outputs", outputs_json(result)},
       {"layers", layers_json(result)},
       {"codes", result.comparison.codes()},
       {"differing_codes", result.comparison.differing_codes()}});
}

std::string page(const Quantized& result, const std::string& network) {
  std::vector<Card> cards;
  for (const OutputError& o : result.outputs) {
    if (cards.size() == 4) break;
    cards.push_back({Card::Kind::usual, o.name, decibels(o.sqnr_db), "signal to quantization noise"});
  }
  BarChart chart{.title = "SQNR of each layer's output", .lo = 0, .axis_label = "SQNR, dB"};
  for (const LayerCost& layer : result.layers)
    chart.bars.push_back(
        {.label = layer.name, .value = layer.sqnr_db, .tooltip = fmt::format("{} ({})", layer.name, layer.op)});
  const std::string sections =
      html_section(
          "outputs", "Outputs",
          html_table(outputs_table(result)) + fmt::format("<p class=\"note\">{}</p>\n", html_escape(kLegend))) +
      html_section("ranges", "Ranges",
                   html_table(ranges_table(result), result.ranges.chosen) +
                       fmt::format("<p class=\"note\">{}</p>\n", html_escape(ranges_sentence(result)))) +
      html_section("layers", "Layers",
                   html_table(layers_table(result, result.layers.size())) + "<div class=\"figures\">\n" +
                       decibel_figures(chart, "All layers quantized, in the order of the network") + "</div>\n");
  return html_cards_page(network, "quantized after training by octet: what int8 costs, by images without labels", cards,
                         sections);
}

/// Throws for files to be written that exist, that are one and the same, or that the command reads.
void require_free(const std::vector<std::string>& written, const QuantizeOptions& options) {
  std::vector<std::filesystem::path> taken = {std::filesystem::weakly_canonical(options.request.network),
                                              std::filesystem::weakly_canonical(options.request.weights)};
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

/// Quantizes the network as the options say.
Quantized quantized(const Common& common, QuantizeOptions& options) {
  QuantizeRequest& request = options.request;
  if (options.percentile && options.method != "percentile")
    throw usage_error("--percentile: belongs to --method percentile; add that, or leave it out");
  request.calibrate.percentile = options.percentile.value_or(request.calibrate.percentile);
  if (options.method != "auto") request.method = value_named(kCalibrationMethods, options.method, "--method");
  request.repair = value_named(kRepairs, options.repair, "--repair");
  request.quant.activation = value_named(kActivationSchemes, options.activation, "--activation");
  const at::Device device = choose_device(common.device);
  const OwnCores own_cores(device.is_cpu());
  say(fmt::format("device: {}", describe_device(device)));
  return by_options([&] {
    const Graph graph = open_network(request);
    set_preprocessing(options, graph.nodes.front().shape, request.preprocessing);
    return octet::quantize(request, graph, device);
  });
}

ExitCode quantize(const Common& common, QuantizeOptions options) {
  const std::string& network = options.request.network;
  const std::string out =
      common.out.empty() ? std::filesystem::path(network).stem().string() + ".int8.safetensors" : common.out;
  require_free({out, options.onnx, options.html}, options);
  if (options.profile && options.onnx.empty())
    throw usage_error("--profile: is how --onnx FILE is written; add that, or leave it out");
  const OnnxProfile profile = value_named(kOnnxProfiles, options.profile.value_or("onnxruntime"), "--profile");
  if (!options.onnx.empty() && profile == OnnxProfile::tensorrt && options.activation != "symmetric_s8")
    throw usage_error("--profile tensorrt takes symmetric codes only: add --activation symmetric_s8");
  const Quantized result = quantized(common, options);
  write_checkpoint(out, result.graph);
  if (!options.onnx.empty()) {
    std::vector<std::string> notes;
    write_file_atomically(options.onnx, write_qdq(result.graph, {.profile = profile}, nullptr, &notes));
    for (const std::string& note : notes) say(fmt::format("{}: {}", options.onnx, note));
  }
  if (!options.html.empty()) write_file_atomically(options.html, page(result, network));
  print_result(common, text(result, out), [&] { return json(result, out); });
  return result.comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

}  // namespace

ExitCode analyze_network(const Common& common, QuantizeOptions options) {
  options.force = true;
  require_free({options.html}, options);
  options.request.alone = std::numeric_limits<int>::max();
  const Quantized result = quantized(common, options);
  const std::string images = counted(static_cast<long>(result.measured_on), "image");
  print_result(
      common,
      fmt::format("{}\n{}{}\n\nmeasured on {} that are not calibrated on\n", outputs_table(result).render(),
                  layers_table(result, result.layers.size()).render(), kLegend, images),
      [&] {
        return text_of(
            {{"images", result.measured_on}, {"outputs", outputs_json(result)}, {"layers", layers_json(result)}});
      });
  if (!options.html.empty()) write_file_atomically(options.html, page(result, options.request.network));
  return ExitCode::ok;
}

void add_network_options(CLI::App& app, QuantizeOptions& options) {
  QuantizeRequest& request = options.request;
  app.add_option("--preset", options.preset, "how images become the input: imagenet, yolo, yolox, none");
  app.add_option("--resize", options.resize, "the shorter side before the centre crop; 0: no resize")
      ->check(CLI::Range(0, 10000));
  app.add_option("--fit", options.fit, "crop, stretch, letterbox, letterbox_corner");
  app.add_option("--order", options.order, "rgb or bgr");
  app.add_option("--mean", options.mean, "one for each channel, or one for all")->delimiter(',');
  app.add_option("--std", options.std, "likewise")->delimiter(',');
  app.add_option("--scale", options.scale, "1: mean and std are of pixels in 0..1; 255: in 0..255")
      ->check(CLI::IsMember({1, 255}));
  app.add_option("--orientation", options.orientation, "exif (default) or as_stored");
  app.add_option("--weights", request.weights, "of a network of the zoo: .safetensors, .pth");
  app.add_option("--classes", request.classes, "of a network of the zoo (default: 1000)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--image-size", request.image_size, "height and width where the network leaves them open")
      ->check(CLI::Range(1, 10000));
  app.add_option("--outputs", request.outputs, "end the network at these values of the file")->delimiter(',');
  app.add_option("--method", options.method,
                 "ranges: auto (by what the outputs lose), mse, minmax, percentile, entropy");
  app.add_option("--percentile", options.percentile, "with --method percentile (default: 99.99)")
      ->check(CLI::Range(50.0, 100.0));
  app.add_option("--activation", options.activation, "affine_u8 (default), unsigned_u8, symmetric_s8");
  app.add_option("--seed", request.seed, "which images calibrate, choose and measure (default: 1)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", request.threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
}

void add_quantize(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<QuantizeOptions>();
  QuantizeRequest& request = options->request;
  CLI::App* command = app.add_subcommand("quantize", "int8 of a float network by images alone: no labels, no training");
  command->add_option("NETWORK", request.network, "an .onnx file, or a network of the zoo with --weights")->required();
  command->add_option("--images", request.images, "folders (with all within), .tar, files or patterns; no labels")
      ->required();
  command->add_option("--limit", request.limit, "at most so many images, evenly spaced (default: 300)")
      ->check(CLI::Range(3, 1000000));
  add_network_options(*command, *options);
  command->add_option("--repair", options->repair, "none (default), fast, full: tried, and taken where they pay");
  command->add_option("--onnx", options->onnx, "also write the int8 network as ONNX (Q/DQ)");
  command->add_option("--profile", options->profile, "for onnxruntime (default), openvino, tensorrt, int32_bias");
  command->add_option("--html", options->html, "write a page of what it costs into this file");
  command->add_flag("--force", options->force, "replace files that exist");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return quantize(common, *options); }); };
  });
}

}  // namespace octet::cli
