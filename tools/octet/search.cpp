// SPDX-License-Identifier: Apache-2.0
// octet search RECIPE|RUN|NETWORK: bits by layer, on a front of accuracy, or of what the output keeps, against cost.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/checkpoint.h"
#include "src/recipe/run.h"
#include "src/report/svg.h"
#include "src/train/model/threads.h"
#include "tools/octet/commands.h"
#include "tools/octet/found_plans.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/quantize.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/ptq_search.h"
#include "trainers/run/run.h"

namespace octet::cli {
namespace {

struct SearchOptions {
  std::string target, cost = "size", svg, html;
  BitSearchOptions search;
  int images = 0;           ///< 0: not given
  QuantizeOptions network;  ///< of a network that is searched by images without labels

  bool has_target() const { return search.accuracy_drop || search.mean_bits; }
};

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
  print_result(common, plans_text(found), [&] { return plans_json(found); });
  if (const double image = 100.0 / static_cast<double>(found.images);
      found.labels && options.search.accuracy_drop && image > *options.search.accuracy_drop)
    say(fmt::format("note: one of {} is {:.2f} points, more than may be lost; data.validation_fraction gives more",
                    counted(found.images, "validation image"), image));
  if (found.result.chosen && !common.out.empty()) write();
  if (!options.svg.empty()) write_file_atomically(options.svg, svg_file(plans_chart(found)));
  if (!options.html.empty()) write_file_atomically(options.html, search_page(found, options.target));
  if (options.has_target() && !found.result.chosen) refuse(found);
}

/// Returns the name of the repair that was taken.
std::string taken_repair(const Quantized& made) {
  return made.repairs.empty() ? "none" : made.repairs[made.repaired].name;
}

/// Searches a network by images without labels: a plan is judged by what the outputs lose.
ExitCode search_images(const Common& common, SearchOptions options) {
  options.network.request.network = options.target;
  options.network.out = common.out;
  options.network.html = options.html;
  options.network.svg = options.svg;
  if (options.images > 0) options.network.request.limit = options.images;
  const SearchedNetwork searched = search_network(options.network, options.search, common.device);
  const FoundPlans found{searched.found, options.search, static_cast<long>(searched.images)};
  show(common, options, found, [&] {
    write_checkpoint(common.out, searched.chosen->graph);
    say(fmt::format("wrote {}: {} lost on {} that chose nothing, repairs: {}\nproof: {}", common.out,
                    percent(mean_lost(searched.chosen->outputs)),
                    counted(static_cast<long>(searched.chosen->measured_on), "image"), taken_repair(*searched.chosen),
                    verdict(searched.chosen->comparison)));
  });
  return searched.chosen && searched.chosen->comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

ExitCode search(const Common& common, SearchOptions options, bool network_options) {
  options.search.cost = value_named(kBitCosts, options.cost, "--cost");
  const bool has_target = options.has_target();
  if (!common.out.empty() && !has_target)
    throw usage_error("search: --out writes the chosen plan; name --accuracy-drop or --mean-bits, by which to choose");
  for (const std::string& file : {common.out, options.svg, options.html})
    if (!file.empty()) require_place_for(file);
  const bool is_run = std::filesystem::is_directory(options.target);
  if (is_network("search", common, options.target, options.network, network_options))
    return search_images(common, options);
  if (options.images > 0) options.search.images = options.images;
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const Recipe recipe =
      is_run ? read_run_recipe(directory.recipe(), common.set) : read_given_recipe(options.target, common.set);
  require_apart(options.target, recipe, {{"--out", common.out}, {"--svg", options.svg}, {"--html", options.html}});
  require_weights("search", options.target, recipe);
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
  add_repair(*group, options->network);
  group->add_flag("--force", options->network.force, "replace files that exist");
  command->callback([&common, &action, options, group] {
    action = [&common, options, given = group->count_all() > 0] {
      return explain_failures([&] { return search(common, *options, given); });
    };
  });
}

}  // namespace octet::cli
