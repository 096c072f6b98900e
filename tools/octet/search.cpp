// SPDX-License-Identifier: Apache-2.0
// octet search RECIPE|RUN: bits by layer, on a front of accuracy against size or operations; as text, JSON and a page.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/checkpoint.h"
#include "src/recipe/run.h"
#include "src/report/html.h"
#include "src/report/svg.h"
#include "src/train/model/threads.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/quantize.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/ptq_search.h"
#include "trainers/run/run.h"

namespace octet::cli {
namespace {

constexpr const char* kPlansLegend =
    "weights: packed; operations: multiply-adds, each times bits of its weight and of its code; predicted: SQNR of the "
    "logits, the errors of single layers added up";

/// The plans that a search found, and what it was asked for.
struct FoundPlans {
  const BitSearch& result;
  const BitSearchOptions& options;
  long images = 0;                           ///< by which plans are judged
  bool labels = false;                       ///< whether those images have labels
  std::string score = "kept", key = "kept";  ///< what a plan's score is called, in JSON too

  double lost_points(const MeasuredPlan& plan) const { return 100 * (result.float_score - plan.score); }
  double operations_share(const MeasuredPlan& plan) const {
    return plan.cost.bit_operations / result.plans.front().cost.bit_operations;
  }
  const char* judged() const { return labels ? "accuracy" : "what the output keeps"; }
  std::string legend() const {
    return labels ? kPlansLegend : fmt::format("{}; kept: what the outputs do not lose", kPlansLegend);
  }
};

constexpr const char* kArrow = " \xE2\x86\x92 ";  // right arrow

const char* plural(BitChoice::What what) { return what == BitChoice::What::weights ? "weights" : "outputs"; }

bool by_size(const FoundPlans& found) { return found.options.cost == BitCostKind::size; }

/// Returns what the chosen plan has to satisfy: "loses at most 0.5 points"; "" if nothing was asked for.
std::string asked(const BitSearchOptions& options) {
  if (options.mean_bits) return fmt::format("has at most {} bits", *options.mean_bits);
  if (options.accuracy_drop) return fmt::format("loses at most {} points", *options.accuracy_drop);
  return "";
}

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

/// Draws accuracy against cost, as SVG inside a page.
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

std::string search_page(const FoundPlans& found, const std::string& title) {
  return html_cards_page(title, "bits by layer, searched by octet after training", cards(found),
                         plans_section(found) + bits_section(found) + sensitivity_section(found));
}

struct SearchOptions {
  std::string target, cost = "size", svg, html;
  BitSearchOptions search;
  int images = 0;           ///< 0: not given
  QuantizeOptions network;  ///< of a network that is searched by images without labels

  bool has_target() const { return search.accuracy_drop || search.mean_bits; }
};

std::string text(const FoundPlans& found) {
  return fmt::format(
      "{}\nfloat {} on {}, on which all of this was chosen; {} choices, {} steps between {} and {} bits\n{}\n",
      plans_table(found).render(), percent(found.result.float_score), counted(found.images, "validation image"),
      found.result.searched.size(), found.result.steps - 1, found.options.bits.front(), found.options.bits.back(),
      found.legend());
}

using Json = nlohmann::ordered_json;  // writes what is infinite as null

Json json_of(const SearchedLayer& layer, const std::vector<int>& bits) {
  Json alone = Json::object();
  for (size_t c = 1; c < bits.size(); ++c) alone[std::to_string(bits[c])] = layer.alone_db[c - 1];
  return {{"layer", layer.name},
          {"what", layer.what == BitChoice::What::weights ? "weights" : "output"},
          {"alone_db", alone}};
}

std::string json(const FoundPlans& found) {
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

/// Throws Error(promise): no plan satisfies what was asked for.
[[noreturn]] void refuse(const FoundPlans& found) {
  const bool by_bits = found.options.mean_bits.has_value();
  const std::vector<MeasuredPlan>& plans = found.result.plans;
  const MeasuredPlan& best =
      *std::min_element(plans.begin(), plans.end(), [&](const MeasuredPlan& a, const MeasuredPlan& b) {
        return by_bits ? a.cost.weight_bits < b.cost.weight_bits : a.score > b.score;
      });
  throw promise_error(fmt::format(
      "no plan {}: the best of {} has {:.2f} bits and loses {:.2f} points; name {} in --bits{}", asked(found.options),
      plans.size(), best.cost.weight_bits, found.lost_points(best), by_bits ? "fewer bits" : "more bits",
      found.labels ? ", or train with the plan's bits (qat.epochs)" : ""));
}

/// Writes the recipe of the chosen plan. For a run, the recipe starts with the run's float weights.
void write_plan(const Common& common, const FoundPlans& found, const Run& run) {
  Recipe planned = with_plan(run.recipe, found.options, found.result.plans[*found.result.chosen].layers);
  if (!run.directory.root.empty()) {
    planned.model.weights = run.directory.float_weights();
    planned.train.epochs = 0;
    planned.train.warmup_epochs = 0;
  }
  write_file_atomically(common.out, write_recipe(planned));
  say(fmt::format("wrote {}: octet train {} goes on from these weights with these bits", common.out,
                  shell_word(common.out)));
}

/// Prints what was found and writes it: the chosen plan by `write` first, as drawing may fail.
void show(const Common& common, const SearchOptions& options, const FoundPlans& found,
          const std::function<void()>& write) {
  print_result(common, text(found), [&] { return json(found); });
  if (const double image = 100.0 / static_cast<double>(found.images);
      found.labels && options.search.accuracy_drop && image > *options.search.accuracy_drop)
    say(fmt::format("note: one of {} is {:.2f} points, more than may be lost; data.validation_fraction gives more",
                    counted(found.images, "validation image"), image));
  if (found.result.chosen && !common.out.empty()) write();
  if (!options.svg.empty()) write_file_atomically(options.svg, svg_file(plans_chart(found)));
  if (!options.html.empty()) write_file_atomically(options.html, search_page(found, options.target));
  if (options.has_target() && !found.result.chosen) refuse(found);
}

/// Searches a network by images without labels: a plan is judged by what the outputs lose.
ExitCode search_images(const Common& common, SearchOptions options) {
  if (!common.set.empty()) throw usage_error("search: --set is for a recipe or run; leave it out");
  options.network.request.network = options.target;
  options.network.out = common.out;
  options.network.html = options.html;
  options.network.svg = options.svg;
  if (options.images > 0) options.network.request.limit = options.images;
  const SearchedNetwork searched = search_network(options.network, options.search, common.device);
  const FoundPlans found{searched.found, options.search, static_cast<long>(searched.images)};
  show(common, options, found, [&] {
    write_checkpoint(common.out, *searched.chosen);
    say(fmt::format("wrote {}\nproof: {}", common.out, verdict(searched.comparison)));
  });
  return searched.comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

ExitCode search(const Common& common, SearchOptions options, bool network_options) {
  options.search.cost = value_named(kBitCosts, options.cost, "--cost");
  const bool has_target = options.has_target();
  if (!common.out.empty() && !has_target)
    throw usage_error("search: --out writes the chosen plan; name --accuracy-drop or --mean-bits, by which to choose");
  for (const std::string& file : {common.out, options.svg, options.html})
    if (!file.empty()) require_place_for(file);
  const bool is_run = std::filesystem::is_directory(options.target);
  if (!options.network.request.images.empty()) {
    if (is_run || options.target.ends_with(".yaml"))
      throw usage_error(fmt::format("{} says itself which images are read; leave --images FOLDER out", options.target));
    return search_images(common, options);
  }
  if (network_options)
    throw usage_error(
        "search: a recipe or run says how images are read; of options that say it for a network none is "
        "taken without --images FOLDER");
  if (options.images > 0) options.search.images = options.images;
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const Recipe recipe =
      is_run ? read_run_recipe(directory.recipe(), common.set) : read_given_recipe(options.target, common.set);
  require_apart(options.target, recipe, {{"--out", common.out}, {"--svg", options.svg}, {"--html", options.html}});
  if (!is_run && recipe.model.weights.empty() && recipe.model.onnx.empty())
    throw usage_error(
        fmt::format("{}: search needs trained weights; set model.weights (--set model.weights=FILE)", options.target));
  const Run run = open_run(recipe, directory, choose_device(common.device));
  const OwnCores own_cores(run.device.is_cpu());
  say(fmt::format("device: {}", describe_device(run.device)));
  const std::string engine = resolve_engines(recipe.evaluate.engines, devices(common)).front();
  const BitSearch result =
      search_bits(run, is_run ? load_float(run) : starting_weights(run), options.search,
                  [&](const Run& tried, const Int8Graph& graph) { return compile_engine(tried, engine, graph); });
  const ScoreNames names = score_names(run.data.task().labels);
  const FoundPlans found{result, options.search, static_cast<long>(run.data.validation.size()),
                         true,   names.score,    names.key};
  show(common, options, found, [&] { write_plan(common, found, run); });
  return ExitCode::ok;
}

}  // namespace

void add_search(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<SearchOptions>();
  CLI::App* command = app.add_subcommand("search", "bits by layer: accuracy against size or operations; --out RECIPE");
  command
      ->add_option("RECIPE", options->target,
                   "a recipe with model.weights, a run directory, or with --images FOLDER a network as octet quantize "
                   "takes it")
      ->required();
  command
      ->add_option("--bits", options->search.bits, "candidates, falling: 8,4; the first is every layer's to begin with")
      ->delimiter(',');
  command->add_option("--cost", options->cost, "size: bits of weights; operations: of weights and of layers' outputs")
      ->check(CLI::IsMember({"size", "operations"}));
  add_images(*command, options->images, options->network.request.images,
             "so many validation images for the SQNR of each layer (default: 256); of a network: where its images are");
  command->add_option("--points", options->search.points, "so many plans are measured")->check(CLI::Range(2, 1000));
  CLI::Option* drop = command->add_option("--accuracy-drop", options->search.accuracy_drop,
                                          "chooses the cheapest plan that loses at most so many points of float's, "
                                          "without labels so many percent of the outputs");
  command
      ->add_option("--mean-bits", options->search.mean_bits,
                   "chooses the first plan with at most so many bits a weight")
      ->check(CLI::Range(2.0, 8.0))
      ->excludes(drop);
  drop->check(CLI::Range(0.0, 100.0));
  command->add_option("--svg", options->svg, "draw the plans and the float network into this file");
  command->add_option("--html", options->html, "write a page of it into this file: plans, bits by layer, sensitivity");
  CLI::App* group = command->add_option_group("of a network");
  options->network.method = "mse";
  add_network_options(*group, options->network);
  group->add_flag("--force", options->network.force, "replace files that exist");
  command->callback([&common, &action, options, group] {
    action = [&common, options, given = group->count_all() > 0] {
      return explain_failures([&] { return search(common, *options, given); });
    };
  });
}

}  // namespace octet::cli
