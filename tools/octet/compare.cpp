// octet compare RUN: is what runs what was trained? Every layer, every code, all engines, over the test images.
#include "src/eval/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/progress.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

std::string json(const Comparison& comparison) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerDifference& layer : comparison.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"codes", layer.codes},
                      {"differing", layer.differing},
                      {"largest_lsb", layer.largest_lsb}});
  }
  const nlohmann::json identical = comparison.promised() ? nlohmann::json(comparison.identical()) : nullptr;
  return nlohmann::json{{"identical", identical},
                        {"verdict", verdict(comparison)},
                        {"programs", comparison.programs},
                        {"exact", comparison.exact},
                        {"images", comparison.images},
                        {"program_images", comparison.program_images},
                        {"differing_predictions", comparison.differing_predictions},
                        {"layers", layers}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

ExitCode compare(const Common& common, const MeasureOptions& options) {
  const MeasuredRun run = open_measured_run(common, options, {"auto"});
  std::vector<OwnedProgram> programs = compared_programs(run.recipe, run.directory, common.device);
  std::vector<std::string> engines = run.engines;
  // Without the QAT graph the first engine is what the others are held against: one that promises its codes.
  const auto is_exact = [](const std::string& name) { return find_engine(name).exact(); };
  std::stable_partition(engines.begin(), engines.end(), is_exact);
  for (const std::string& name : engines)
    programs.push_back({name, find_engine(name).compile(run.graph, run.compile), 0, is_exact(name)});
  if (programs.size() < 2)
    throw usage_error("compare needs two programs: name more engines, or use a build with training");

  const Comparison comparison =
      octet::compare(run.graph, named(programs), run.data.test_images(options.images), run.recipe.evaluate.batch_size);
  print_result(common, describe(comparison), [&] { return json(comparison); });
  return comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<MeasureOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "layer by layer: does every engine give the codes of the QAT graph?");
  add_measure_options(*command, *options, "all that can run here and promise the trained codes");
  command->callback([&common, &action, options] { action = [&common, options] { return compare(common, *options); }; });
}

}  // namespace octet::cli
