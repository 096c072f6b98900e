// octet search RECIPE|RUN: bits by layer, on a front of accuracy against size or operations.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "src/report/html.h"
#include "src/report/svg.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/bit_search.h"
#include "trainers/run/measure.h"

namespace octet::cli {
namespace {

struct Options {
  std::string target, cost = "size", svg;
  BitSearchOptions search;
};

double operations_share(const BitSearch& result, const MeasuredPlan& plan) {
  return plan.cost.bit_operations / result.plans.front().cost.bit_operations;
}

double lost_points(const BitSearch& result, const MeasuredPlan& plan) {
  return 100 * (result.float_score - plan.score);
}

std::string text(const BitSearch& result, const Options& options, const Run& run) {
  TextTable table({{"bits of weights"},
                   {"weights"},
                   {"operations"},
                   {"predicted dB"},
                   {score_names(run.data.task().labels).score},
                   {"lost points"},
                   {"", Align::left}});
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const MeasuredPlan& plan = result.plans[i];
    table.add_row({fmt::format("{:.2f}", plan.cost.weight_bits), human_bytes(plan.cost.weight_bytes),
                   percent(operations_share(result, plan), 1), fmt::format("{:.1f}", plan.predicted_db),
                   percent(plan.score), fmt::format("{:.2f}", lost_points(result, plan)),
                   result.chosen == i ? "chosen" : ""});
  }
  return fmt::format(
      "{}\nfloat {} on {}, on which all of this was chosen; {} choices, {} steps between {} and {} bits\n"
      "weights: packed; operations: multiply-adds, each times bits of its weight and of its code; predicted: SQNR of "
      "the "
      "logits, the errors of single layers added up\n",
      table.render(), percent(result.float_score),
      counted(static_cast<long>(run.data.validation.size()), "validation image"), result.choices, result.steps - 1,
      options.search.bits.front(), options.search.bits.back());
}

std::string json(const BitSearch& result, const Run& run) {
  using Json = nlohmann::ordered_json;
  const std::string key = fmt::format("validation_{}", score_names(run.data.task().labels).key);
  Json plans = Json::array();
  for (const MeasuredPlan& plan : result.plans) {
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
                     {"points_lost", lost_points(result, plan)},
                     {"layers", layers}});
  }
  return Json{{"validation_images", run.data.validation.size()},
              {"float", {{key, result.float_score}}},
              {"plans", plans},
              {"chosen", result.chosen ? Json(*result.chosen) : Json(nullptr)}}
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string chart(const BitSearch& result, const Options& options, const Run& run) {
  const bool size = options.search.cost == BitCostKind::size;
  Line plans{.name = "after training", .colour = colour::kBlue, .dashed = false, .x = {}, .y = {}};
  Line network{.name = "float", .colour = colour::kGrey, .dashed = true, .x = {}, .y = {}};
  for (const MeasuredPlan& plan : result.plans) {
    plans.x.push_back(size ? plan.cost.weight_bytes / 1000 : 100 * operations_share(result, plan));
    plans.y.push_back(100 * plan.score);
    network.x.push_back(plans.x.back());
    network.y.push_back(100 * result.float_score);
  }
  return svg_lines({.title = "accuracy against cost, bits chosen by layer",
                    .x_label = size ? "weights, kB" : "bit operations, % of the most",
                    .y_label = fmt::format("{}, % of validation images", score_names(run.data.task().labels).score),
                    .lines = {plans, network},
                    .bands = {}});
}

/// Nothing that was found keeps to what was asked.
[[noreturn]] void refuse(const BitSearch& result, const Options& options) {
  const MeasuredPlan& best =
      *std::min_element(result.plans.begin(), result.plans.end(), [&](const MeasuredPlan& a, const MeasuredPlan& b) {
        return options.search.mean_bits ? a.cost.weight_bits < b.cost.weight_bits : a.score > b.score;
      });
  throw promise_error(fmt::format(
      "no plan {}: the best of {} has {:.2f} bits and loses {:.2f} points; name {}, or train with the plan's bits "
      "(qat.epochs)",
      options.search.mean_bits ? fmt::format("has at most {} bits", *options.search.mean_bits)
                               : fmt::format("loses at most {} points", *options.search.accuracy_drop),
      result.plans.size(), best.cost.weight_bits, lost_points(result, best),
      options.search.mean_bits ? "fewer bits in --bits" : "more bits in --bits"));
}

/// The recipe of the chosen plan. Of a run: from its float weights.
void write_plan(const Common& common, const Options& options, const Run& run, const BitSearch& result) {
  Recipe planned = with_plan(run.recipe, options.search, result.plans[*result.chosen].layers);
  if (!run.directory.root.empty()) {
    planned.model.weights = run.directory.float_weights();
    planned.train.epochs = 0;
    planned.train.warmup_epochs = 0;
  }
  write_file_atomically(common.out, write_recipe(planned));
  say(fmt::format("wrote {}: octet train {} goes on from these weights with these bits", common.out, common.out));
}

ExitCode search(const Common& common, Options options) {
  options.search.cost = value_named(kBitCosts, options.cost, "--cost");
  const bool has_target = options.search.accuracy_drop || options.search.mean_bits;
  if (!common.out.empty() && !has_target)
    throw usage_error("search: --out writes the chosen plan; name --accuracy-drop or --mean-bits, by which to choose");
  for (const std::string& file : {common.out, options.svg})
    if (!file.empty()) require_folder_of(file);
  const bool is_run = std::filesystem::is_directory(options.target);
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const Recipe recipe = read_recipe(is_run ? directory.recipe() : options.target, common.set);
  if (!is_run && recipe.model.weights.empty() && recipe.model.onnx.empty())
    throw usage_error(
        fmt::format("{}: search needs trained weights; set model.weights (--set model.weights=FILE)", options.target));
  const Run run = open_run(recipe, directory, choose_device(common.device));
  say(fmt::format("device: {}", describe_device(run.device)));
  const std::string engine = resolve_engines(recipe.evaluate.engines, devices(common)).front();
  const BitSearch result =
      search_bits(run, is_run ? load_float(run) : starting_weights(run), options.search,
                  [&](const Run& tried, const Int8Graph& graph) { return compile_engine(tried, engine, graph); });
  print_result(common, text(result, options, run), [&] { return json(result, run); });
  if (const double image = 100.0 / static_cast<double>(run.data.validation.size());
      options.search.accuracy_drop && image > *options.search.accuracy_drop)
    say(fmt::format("note: one of {} is {:.2f} points, more than may be lost; data.validation_fraction gives more",
                    counted(static_cast<long>(run.data.validation.size()), "validation image"), image));
  if (result.chosen && !common.out.empty())
    write_plan(common, options, run, result);  // before what can fail for a picture
  if (!options.svg.empty()) write_file_atomically(options.svg, svg_file(chart(result, options, run)));
  if (has_target && !result.chosen) refuse(result, options);
  return ExitCode::ok;
}

}  // namespace

void add_search(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("search", "bits by layer: accuracy against size or operations; --out RECIPE");
  command->add_option("RECIPE", options->target, "a recipe with model.weights, or a run directory")->required();
  command
      ->add_option("--bits", options->search.bits, "candidates, falling: 8,4; the first is every layer's to begin with")
      ->delimiter(',');
  command->add_option("--cost", options->cost, "size: bits of weights; operations: of weights and of layers' outputs")
      ->check(CLI::IsMember({"size", "operations"}));
  command->add_option("--images", options->search.images, "so many validation images for the SQNR of each layer")
      ->check(CLI::Range(1, 10000000));
  command->add_option("--points", options->search.points, "so many plans are measured")->check(CLI::Range(2, 1000));
  CLI::Option* drop = command->add_option("--accuracy-drop", options->search.accuracy_drop,
                                          "chooses the cheapest plan that loses at most so many points of float's");
  command
      ->add_option("--mean-bits", options->search.mean_bits,
                   "chooses the first plan with at most so many bits a weight")
      ->check(CLI::Range(2.0, 8.0))
      ->excludes(drop);
  drop->check(CLI::Range(0.0, 100.0));
  command->add_option("--svg", options->svg, "draw the plans and the float network into this file");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return search(common, *options); }); };
  });
}

}  // namespace octet::cli
