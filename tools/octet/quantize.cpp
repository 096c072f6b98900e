// SPDX-License-Identifier: Apache-2.0
// octet quantize NETWORK --images FOLDER: int8 of a float network by images or ready inputs alone, and what that costs.
#include "tools/octet/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/names.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "src/report/html.h"
#include "tools/octet/measured_run.h"
#include "trainers/gpu.h"
#include "trainers/run/auto_ranges.h"

namespace octet::cli {
namespace {

constexpr size_t kShownLayers = 8;

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
    table.add_row({text_of(trial.ranges), percent(trial.lost)});
  return table;
}

std::string ranges_sentence(const Quantized& result) {
  const ChosenRanges& ranges = result.ranges;
  std::string text = fmt::format("ranges: {}", text_of(ranges.trials[ranges.chosen].ranges));
  if (!ranges.edges.empty())
    text += fmt::format(", for {} another: {} lost", counted(static_cast<long>(ranges.edges.size()), "edge"),
                        percent(ranges.lost));
  if (!ranges.joint_fits) text += fmt::format("; {}", kJointLeftOut);
  return text;
}

/// Returns "a scale a channel: 3 functions, 32.7 % -> 9.0 % lost", or "" without.
std::string channels_sentence(const Quantized& result) {
  const Quantized::ChannelScales& scales = result.channel_scales;
  if (scales.lookups.empty()) return "";
  return fmt::format("a scale a channel: {}, {} -> {} lost",
                     counted(static_cast<long>(scales.lookups.size()), "function"), percent(scales.before),
                     percent(scales.lost));
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
    "lost: noise / (noise + signal) of an output, mean over images; signal: what differs from the output's median";

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
  if (const std::string channels = channels_sentence(result); !channels.empty()) body += channels + "\n\n";
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
  for (const auto& t : result.ranges.trials) trials.push_back({{"ranges", text_of(t.ranges)}, {"lost", t.lost}});
  for (const auto& e : result.ranges.edges)
    edges.push_back({{"node", e.node}, {"ranges", text_of(e.ranges)}, {"scale", e.after}, {"before", e.before}});
  for (const auto& r : result.repairs)
    repairs.push_back({{"repairs", r.name},
                       {"lost", r.refused.empty() ? Json(r.lost) : Json(nullptr)},
                       {"refused", r.refused.empty() ? Json(nullptr) : Json(r.refused)}});
  return text_of(
      {{"checkpoint", out},
       {"images",
        {{"calibrated", result.calibrated_on}, {"chosen", result.chosen_on}, {"measured", result.measured_on}}},
       {"ranges", text_of(result.ranges.trials[result.ranges.chosen].ranges)},
       {"trials", trials},
       {"other_edges", edges},
       {"repairs", repairs},
       {"channel_scales",
        {{"functions", result.channel_scales.lookups},
         {"before", result.channel_scales.before},
         {"lost", result.channel_scales.lost}}},
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
                       fmt::format("<p class=\"note\">{}</p>\n<p class=\"note\">{}</p>\n",
                                   html_escape(ranges_sentence(result)), html_escape(channels_sentence(result)))) +
      html_section("layers", "Layers",
                   html_table(layers_table(result, result.layers.size())) + "<div class=\"figures\">\n" +
                       decibel_figures(chart, "All layers quantized, in the order of the network") + "</div>\n");
  return html_cards_page(network, "quantized after training by octet: what int8 costs, by images without labels", cards,
                         sections);
}

ExitCode quantize(const Common& common, QuantizeOptions options) {
  options.out = common.out;
  const Quantized result = quantize_files(options, common.device);
  if (!options.html.empty()) write_file_atomically(options.html, page(result, options.request.network));
  print_result(common, text(result, options.out), [&] { return json(result, options.out); });
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
