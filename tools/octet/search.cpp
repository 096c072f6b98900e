// octet search RECIPE|RUN: bits by layer, on a front of accuracy against size or operations.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "src/model/own_cores.h"
#include "src/report/svg.h"
#include "src/run/given_recipe.h"
#include "tools/octet/commands.h"
#include "tools/octet/search_page.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/bit_search.h"
#include "trainers/run/measure.h"

namespace octet::cli {
namespace {

struct Options {
  std::string target, cost = "size", svg, html;
  BitSearchOptions search;
};

std::string text(const FoundPlans& found) {
  return fmt::format(
      "{}\nfloat {} on {}, on which all of this was chosen; {} choices, {} steps between {} and {} bits\n{}\n",
      plans_table(found).render(), percent(found.result.float_score), counted(found.images(), "validation image"),
      found.result.searched.size(), found.result.steps - 1, found.options.bits.front(), found.options.bits.back(),
      kPlansLegend);
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
  const std::string key = fmt::format("validation_{}", score_names(found.run.data.task().labels).key);
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
  return Json{{"validation_images", found.images()},
              {"float", {{key, found.result.float_score}}},
              {"searched", searched},
              {"plans", plans},
              {"chosen", chosen ? Json(*chosen) : Json(nullptr)}}
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

/// Nothing that was found keeps to what was asked.
[[noreturn]] void refuse(const FoundPlans& found) {
  const bool by_bits = found.options.mean_bits.has_value();
  const std::vector<MeasuredPlan>& plans = found.result.plans;
  const MeasuredPlan& best =
      *std::min_element(plans.begin(), plans.end(), [&](const MeasuredPlan& a, const MeasuredPlan& b) {
        return by_bits ? a.cost.weight_bits < b.cost.weight_bits : a.score > b.score;
      });
  throw promise_error(fmt::format(
      "no plan {}: the best of {} has {:.2f} bits and loses {:.2f} points; name {}, or train with the plan's bits "
      "(qat.epochs)",
      asked(found.options), plans.size(), best.cost.weight_bits, found.lost_points(best),
      by_bits ? "fewer bits in --bits" : "more bits in --bits"));
}

/// The recipe of the chosen plan. Of a run: from its float weights.
void write_plan(const Common& common, const FoundPlans& found) {
  Recipe planned = with_plan(found.run.recipe, found.options, found.result.plans[*found.result.chosen].layers);
  if (!found.run.directory.root.empty()) {
    planned.model.weights = found.run.directory.float_weights();
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
  for (const std::string& file : {common.out, options.svg, options.html})
    if (!file.empty()) require_place_for(file);
  const bool is_run = std::filesystem::is_directory(options.target);
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
  const FoundPlans found{result, options.search, run};
  print_result(common, text(found), [&] { return json(found); });
  if (const double image = 100.0 / static_cast<double>(found.images());
      options.search.accuracy_drop && image > *options.search.accuracy_drop)
    say(fmt::format("note: one of {} is {:.2f} points, more than may be lost; data.validation_fraction gives more",
                    counted(found.images(), "validation image"), image));
  if (result.chosen && !common.out.empty()) write_plan(common, found);  // before what can fail for a picture
  if (!options.svg.empty()) write_file_atomically(options.svg, svg_file(plans_chart(found)));
  if (!options.html.empty()) write_file_atomically(options.html, search_page(found, options.target));
  if (has_target && !result.chosen) refuse(found);
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
  command->add_option("--html", options->html, "write a page of it into this file: plans, bits by layer, sensitivity");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return search(common, *options); }); };
  });
}

}  // namespace octet::cli
