#include "tools/octet/analyze_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/report/figures.h"
#include "src/report/html.h"

namespace octet::cli {
namespace {

using Value = std::function<double(const LayerSensitivity&)>;

double alone(const LayerSensitivity& layer) { return layer.alone.sqnr_db; }
double all_but(const LayerSensitivity& layer) { return layer.all_but.sqnr_db; }
double output(const LayerSensitivity& layer) { return layer.sqnr_db; }

/// The least first.
std::vector<LayerSensitivity> sorted(std::vector<LayerSensitivity> layers, const Value& value) {
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const LayerSensitivity& a, const LayerSensitivity& b) { return value(a) < value(b); });
  return layers;
}

std::string bits(int count) { return count == 0 ? "" : std::to_string(count); }

/// `of`: what the noise is of. `lo`: where the axis starts.
std::string bars(const std::vector<LayerSensitivity>& layers, const Value& value, const std::string& of, double lo,
                 const std::string& caption) {
  BarChart chart{
      .title = fmt::format("SQNR of {} by layer", of), .lo = lo, .axis_label = fmt::format("SQNR of {}, dB", of)};
  for (const LayerSensitivity& layer : layers)
    chart.bars.push_back(
        {.label = layer.name, .value = value(layer), .tooltip = fmt::format("{} ({})", layer.name, layer.op)});
  return decibel_figures(chart, caption);
}

/// Differences of a dB or two on top of many: the axis starts a little below the least, at 0 where they are larger.
double start_of_axis(const std::vector<LayerSensitivity>& falling, const Value& value) {
  if (falling.empty()) return 0;
  const double most = value(falling.front()), least = value(falling.back());
  return std::isfinite(most) && least > most / 2 ? 5 * std::floor(least / 5) : 0;
}

std::vector<Card> cards(const MeasuredLayers& measured) {
  const LogitsLoss& all = measured.result.all;
  std::vector<Card> cards = {
      {Card::Kind::usual, "logits", decibels(all.sqnr_db), "signal to quantization noise, all layers quantized"},
      {Card::Kind::usual, "same class", percent(all.agreement, 1),
       fmt::format("the float network's on {}", measured.answers())}};
  const auto& layers = measured.result.layers;
  const auto worst =
      std::min_element(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return alone(a) < alone(b); });
  if (worst != layers.end())
    cards.push_back({Card::Kind::plain, "worst layer", decibels(alone(*worst)),
                     fmt::format("logits with {} alone quantized", worst->name)});
  return cards;
}

}  // namespace

std::string MeasuredLayers::answers() const {
  return (labels == Labels::pixels ? "the pixels of " : "") + counted(static_cast<long>(images), "validation image");
}

TextTable sensitivity_table(const Sensitivity& result) {
  TextTable table({{"layer", Align::left},
                   {"op", Align::left},
                   {"weights"},
                   {"codes"},
                   {"alone dB"},
                   {"same class"},
                   {"all but it dB"},
                   {"same class"},
                   {"output dB"},
                   {"worst channels", Align::left}});
  for (const LayerSensitivity& layer : sorted(result.layers, alone)) {
    std::string worst;
    for (const ChannelLoss& c : layer.worst)
      worst += fmt::format("{}{}: {}", worst.empty() ? "" : ", ", c.channel, decibels(c.sqnr_db, ""));
    table.add_row({layer.name, layer.op, bits(layer.weight_bits), bits(layer.activation_bits),
                   decibels(layer.alone.sqnr_db, ""), percent(layer.alone.agreement, 1),
                   decibels(layer.all_but.sqnr_db, ""), percent(layer.all_but.agreement, 1),
                   decibels(layer.sqnr_db, ""), worst});
  }
  return table;
}

std::string analyze_page(const MeasuredLayers& measured, const std::string& title) {
  const Sensitivity& result = measured.result;
  std::vector<LayerSensitivity> gains = sorted(result.layers, all_but);
  std::reverse(gains.begin(), gains.end());
  const std::string charts =
      bars(sorted(result.layers, alone), alone, "the logits", 0,
           "<b>One layer quantized</b>, no other: the layer that costs the most first") +
      bars(
          gains, all_but, "the logits", start_of_axis(gains, all_but),
          fmt::format("<b>All layers but one quantized</b>: the layer that gives back the most first; with all of them "
                      "it is {}",
                      decibels(result.all.sqnr_db))) +
      bars(result.layers, output, "the output", 0,
           "<b>Each layer's own output</b> with all layers quantized, in the order of the network");
  const std::string sections =
      html_section("sensitivity", "Sensitivity",
                   "<p>Signal to quantization noise (SQNR) in dB: the shorter a bar, the more is lost; 6 dB are one "
                   "bit.</p>\n<div class=\"figures\">\n" +
                       charts + "</div>\n") +
      html_section("layers", "Layers",
                   html_table(sensitivity_table(result)) +
                       fmt::format("<p class=\"note\">{}</p>\n", html_escape(kSensitivityLegend)));
  return html_cards_page(title, "what quantization costs layer by layer, measured by octet", cards(measured), sections);
}

}  // namespace octet::cli
