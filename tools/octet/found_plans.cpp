// SPDX-License-Identifier: Apache-2.0
#include "tools/octet/found_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/svg.h"

namespace octet::cli {
namespace {

constexpr const char* kPlansLegend =
    "weights: packed; operations: multiply-adds, each times bits of its weight and of its code; predicted: SQNR of the "
    "logits, the errors of single layers added up";

constexpr const char* kArrow = " \xE2\x86\x92 ";  // right arrow

const char* plural(BitChoice::What what) { return what == BitChoice::What::weights ? "weights" : "outputs"; }

bool by_size(const FoundPlans& found) { return found.options.cost == BitCostKind::size; }

TextTable plans_table(const FoundPlans& found) {
  TextTable table({{"bits of weights"},
                   {"weights"},
                   {"operations"},
                   {"predicted dB"},
                   {found.score},
                   {"lost points"},
                   {"", Align::left}});
  for (size_t i = 0; i < found.result.plans.size(); ++i) {
    const MeasuredPlan& plan = found.result.plans[i];
    table.add_row({fmt::format("{:.2f}", plan.cost.weight_bits), human_bytes(plan.cost.weight_bytes),
                   percent(found.operations_share(plan), 1), fmt::format("{:.1f}", plan.predicted_db),
                   percent(plan.score), fmt::format("{:.2f}", found.lost_points(plan)),
                   found.result.chosen == i ? "chosen" : ""});
  }
  return table;
}

std::vector<Card> cards(const FoundPlans& found) {
  const BitSearch& result = found.result;
  std::vector<Card> cards = {{Card::Kind::plain, "float", percent(result.float_score),
                              fmt::format("{} on {}", found.score, counted(found.images, "validation image"))}};
  const std::string wanted = asked(found.options);
  if (!result.chosen) {
    cards.push_back({wanted.empty() ? Card::Kind::plain : Card::Kind::bad, "chosen", "none",
                     wanted.empty() ? "--accuracy-drop or --mean-bits chooses a plan" : "no plan " + wanted});
    return cards;
  }
  const MeasuredPlan &plan = result.plans[*result.chosen], &most = result.plans.front();
  const double lost = found.lost_points(plan);
  cards.push_back({Card::Kind::good, "chosen", fmt::format("{:.2f} bits", plan.cost.weight_bits),
                   "a weight, on average: it " + wanted});
  cards.push_back({Card::Kind::usual, "against float",
                   fmt::format("{}{:.2f} points", lost >= 0.005 ? "\xE2\x88\x92" : "+", std::abs(lost)),
                   percent(result.float_score) + kArrow + percent(plan.score) + " " + found.score});
  const int bits = found.options.bits[0];
  cards.push_back(by_size(found)
                      ? Card{Card::Kind::usual, "weights", human_bytes(plan.cost.weight_bytes),
                             fmt::format("packed, {} with {} bits", human_bytes(most.cost.weight_bytes), bits)}
                      : Card{Card::Kind::usual, "operations", percent(found.operations_share(plan), 1),
                             fmt::format("of the bit operations with {} bits", bits)});
  return cards;
}

std::string plans_section(const FoundPlans& found) {
  const std::string caption = fmt::format(
      "Each point is a plan, quantized after training: {} in % against {}.{}", found.score,
      by_size(found) ? "the size of its packed weights in kB" : "its bit operations in % of the plan with the most",
      found.result.chosen ? " The red one is chosen." : "");
  return html_section("plans", found.labels ? "Accuracy against cost" : "What the output keeps against cost",
                      "<div class=\"figures wide\">" + figure(plans_chart(found), html_escape(caption)) + "</div>\n" +
                          html_table(plans_table(found), found.result.chosen) +
                          fmt::format("<p class=\"note\">{}</p>\n", html_escape(found.legend())));
}

/// Draws the bits of the layers' weights or outputs: a row for each layer, a column for each plan.
std::string bits_cells(const FoundPlans& found, BitChoice::What what) {
  CellMap map{.title = fmt::format("Bits of the layers' {} by plan", plural(what)),
              .row_name = "layer",
              .column_name = by_size(found) ? "plan: mean bits of a weight" : "plan: bit operations, %",
              .rows = {},
              .columns = {},
              .values = {},
              .scale = found.options.bits,
              .strong_column = found.result.chosen};
  for (const MeasuredPlan& plan : found.result.plans)
    map.columns.push_back(by_size(found) ? fmt::format("{:.2f}", plan.cost.weight_bits)
                                         : fmt::format("{:.3g}", 100 * found.operations_share(plan)));
  for (size_t i = 0; i < found.result.searched.size(); ++i) {
    if (found.result.searched[i].what != what) continue;
    map.rows.push_back(found.result.searched[i].name);
    for (const MeasuredPlan& plan : found.result.plans)
      map.values.push_back(found.options.bits[static_cast<size_t>(plan.levels[i])]);
  }
  return cell_figures(map, what == BitChoice::What::weights ? "<b>Weights</b>" : "<b>Outputs</b> of the layers");
}

std::string bits_section(const FoundPlans& found) {
  const std::string text = fmt::format(
      "Bits of each layer's {}, a column a plan: the fewer, the darker.{} Layers whose bits the recipe pins are left "
      "out.",
      by_size(found) ? "weights" : "weights, then of its outputs",
      found.result.chosen ? " The chosen one is framed." : "");
  return html_section(
      "bits", "Bits by layer",
      fmt::format("<p>{}</p>\n<div class=\"figures\">\n{}{}</div>\n", text, bits_cells(found, BitChoice::What::weights),
                  bits_cells(found, BitChoice::What::edge)));
}

/// Draws a bar for each layer's weights or outputs at one number of bits, on the axis that all these charts share.
std::string alone_bars(const FoundPlans& found, BitChoice::What what, size_t candidate) {
  const int bits = found.options.bits[candidate];
  BarChart chart{.title = fmt::format("SQNR of the logits with one layer's {} alone at {} bits", plural(what), bits),
                 .axis_label = "SQNR of the logits, dB"};
  for (const SearchedLayer& layer : found.result.searched) {
    for (const double db : layer.alone_db)
      if (std::isfinite(db)) {
        chart.lo = std::min(chart.lo, db);
        chart.hi = std::max(chart.hi, db);
      }
    if (layer.what != what) continue;
    chart.bars.push_back({.label = layer.name,
                          .value = layer.alone_db[candidate - 1],
                          .tooltip = fmt::format("{}, {} at {} bits", layer.name, plural(what), bits)});
  }
  return decibel_figures(chart, fmt::format("One layer's <b>{} at {} bits</b>", plural(what), bits));
}

std::string sensitivity_section(const FoundPlans& found) {
  std::string html = fmt::format(
      "<p>Signal to quantization noise (SQNR) of the logits in dB with one layer alone at fewer bits, without what {} "
      "bits of it cost: the shorter a bar, the more is lost.</p>\n<div class=\"figures\">\n",
      found.options.bits[0]);
  for (size_t candidate = 1; candidate < found.options.bits.size(); ++candidate)
    for (const BitChoice::What what : {BitChoice::What::weights, BitChoice::What::edge})
      html += alone_bars(found, what, candidate);
  return html_section("sensitivity", "Sensitivity", html + "</div>\n");
}

using Json = nlohmann::ordered_json;  // writes what is infinite as null

Json json_of(const SearchedLayer& layer, const std::vector<int>& bits) {
  Json alone = Json::object();
  for (size_t c = 1; c < bits.size(); ++c) alone[std::to_string(bits[c])] = layer.alone_db[c - 1];
  return {{"layer", layer.name},
          {"what", layer.what == BitChoice::What::weights ? "weights" : "output"},
          {"alone_db", alone}};
}

}  // namespace

std::string FoundPlans::legend() const {
  return labels ? kPlansLegend : fmt::format("{}; kept: what the outputs do not lose", kPlansLegend);
}

std::string asked(const BitSearchOptions& options) {
  if (options.mean_bits) return fmt::format("has at most {} bits", *options.mean_bits);
  if (options.accuracy_drop) return fmt::format("loses at most {} points", *options.accuracy_drop);
  return "";
}

std::string plans_chart(const FoundPlans& found) {
  Line plans{.name = "after training", .colour = colour::kBlue, .dashed = false, .x = {}, .y = {}};
  Line network{.name = "float", .colour = colour::kGrey, .dashed = true, .x = {}, .y = {}};
  for (const MeasuredPlan& plan : found.result.plans) {
    plans.x.push_back(by_size(found) ? plan.cost.weight_bytes / 1000 : 100 * found.operations_share(plan));
    plans.y.push_back(100 * plan.score);
    network.x.push_back(plans.x.back());
    network.y.push_back(100 * found.result.float_score);
  }
  LineChart chart{.title = fmt::format("{} against cost, bits chosen by layer", found.judged()),
                  .x_label = by_size(found) ? "weights, kB" : "bit operations, % of the most",
                  .y_label = fmt::format("{}, % of {}", found.score, found.labels ? "validation images" : "the output"),
                  .lines = {plans, network},
                  .bands = {}};
  if (const auto chosen = found.result.chosen)
    chart.lines.push_back({"chosen", colour::kVermillion, false, {plans.x[*chosen]}, {plans.y[*chosen]}});
  return svg_lines(chart);
}

std::string search_page(const FoundPlans& found, const std::string& title) {
  return html_cards_page(title, "bits by layer, searched by octet after training", cards(found),
                         plans_section(found) + bits_section(found) + sensitivity_section(found));
}

std::string plans_text(const FoundPlans& found) {
  return fmt::format(
      "{}\nfloat {} on {}, on which all of this was chosen; {} choices, {} steps between {} and {} bits\n{}\n",
      plans_table(found).render(), percent(found.result.float_score), counted(found.images, "validation image"),
      found.result.searched.size(), found.result.steps - 1, found.options.bits.front(), found.options.bits.back(),
      found.legend());
}

std::string plans_json(const FoundPlans& found) {
  const std::string key = fmt::format("validation_{}", found.key);
  Json searched = Json::array(), plans = Json::array();
  for (const SearchedLayer& layer : found.result.searched) searched.push_back(json_of(layer, found.options.bits));
  for (const MeasuredPlan& plan : found.result.plans) {
    Json layers = Json::array();
    for (const LayerBits& layer : plan.layers) {
      Json entry = {{"match", layer.match}};
      if (layer.weight_bits != 0) entry["weight_bits"] = layer.weight_bits;
      if (layer.activation_bits != 0) entry["activation_bits"] = layer.activation_bits;
      layers.push_back(entry);
    }
    plans.push_back({{"weight_bits", plan.cost.weight_bits},
                     {"weight_bytes", plan.cost.weight_bytes},
                     {"bit_operations", plan.cost.bit_operations},
                     {"predicted_sqnr_db", plan.predicted_db},
                     {key, plan.score},
                     {"points_lost", found.lost_points(plan)},
                     {"layers", layers}});
  }
  const std::optional<size_t> chosen = found.result.chosen;
  return Json{{"validation_images", found.images},
              {"float", {{key, found.result.float_score}}},
              {"searched", searched},
              {"plans", plans},
              {"chosen", chosen ? Json(*chosen) : Json(nullptr)}}
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace octet::cli
