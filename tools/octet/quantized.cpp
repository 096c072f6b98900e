// SPDX-License-Identifier: Apache-2.0
#include "tools/octet/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "src/report/html.h"
#include "trainers/run/advice.h"
#include "trainers/run/auto_ranges.h"

namespace octet::cli {
namespace {

using Json = nlohmann::ordered_json;

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
  std::string text = fmt::format("ranges: {}", text_of(ranges.chosen_method()));
  if (!ranges.edges.empty())
    text += fmt::format(", for {} another: {} lost", counted(static_cast<long>(ranges.edges.size()), "edge"),
                        percent(ranges.lost));
  if (!ranges.joint_fits) text += fmt::format("; {}", joint_left_out());
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

/// Returns a note of the page; "" for none.
std::string paragraph(const std::string& text) {
  return text.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", html_escape(text));
}

}  // namespace

std::string lost_note(const Quantized& result) {
  const std::string silence = silence_note(result.outputs, result.measured_on);
  return silence.empty() ? "" : fmt::format("note: {}\n", silence);
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

std::string json_text(const Json& document) { return document.dump(2, ' ', false, Json::error_handler_t::replace); }

std::string quantized_text(const Quantized& result, const std::string& out) {
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
  body += fmt::format("\n{}\nproof: {}\n", lost_note(result), verdict(result.comparison));
  const auto bytes = static_cast<double>(std::filesystem::file_size(out));
  return body + fmt::format("wrote {}: {}; the float weights: {}", out, human_bytes(bytes),
                            human_bytes(static_cast<double>(result.float_bytes)));
}

std::string quantized_json(const Quantized& result, const std::string& out) {
  Json trials = Json::array(), edges = Json::array(), repairs = Json::array(), left_out = Json::array();
  for (const auto& t : result.ranges.trials) trials.push_back({{"ranges", text_of(t.ranges)}, {"lost", t.lost}});
  if (!result.ranges.joint_fits) left_out.push_back({{"ranges", text_of(kJointRanges)}, {"why", kNoJoint}});
  for (const auto& e : result.ranges.edges)
    edges.push_back({{"node", e.node}, {"ranges", text_of(e.ranges)}, {"scale", e.after}, {"before", e.before}});
  for (const auto& r : result.repairs)
    repairs.push_back({{"repairs", r.name},
                       {"lost", r.refused.empty() ? Json(r.lost) : Json(nullptr)},
                       {"refused", r.refused.empty() ? Json(nullptr) : Json(r.refused)}});
  return json_text(
      {{"checkpoint", out},
       {"images",
        {{"calibrated", result.calibrated_on}, {"chosen", result.chosen_on}, {"measured", result.measured_on}}},
       {"ranges", text_of(result.ranges.chosen_method())},
       {"trials", trials},
       {"left_out", left_out},
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

std::string quantized_page(const Quantized& result, const std::string& network) {
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
      html_section("outputs", "Outputs",
                   html_table(outputs_table(result)) + paragraph(kLegend) + paragraph(lost_note(result))) +
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

}  // namespace octet::cli
