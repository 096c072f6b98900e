// octet compare RUN: is what runs what was trained? Every layer, every code, all engines, over the validation set.
#include "src/eval/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/common/progress.h"
#include "src/eval/run_data.h"
#include "src/eval/run_directory.h"
#include "src/graph/checkpoint.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

struct Options {
  std::string run, checkpoint;
  std::vector<std::string> engines;
  int images = 0;
  std::optional<int> threads;
};

std::string json(const Comparison& comparison) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerDifference& layer : comparison.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"codes", layer.codes},
                      {"differing", layer.differing},
                      {"largest_lsb", layer.largest_lsb}});
  }
  return nlohmann::json{{"identical", comparison.identical()},
                        {"programs", comparison.programs},
                        {"images", comparison.images},
                        {"differing_predictions", comparison.differing_predictions},
                        {"layers", layers}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

ExitCode compare(const Common& common, const Options& options) {
  const RunDirectory directory = run_directory(options.run);
  const Recipe recipe = recipe_of(directory, common.set);
  const std::string checkpoint = checkpoint_of(options.checkpoint.empty() ? directory.root : options.checkpoint);
  const Int8Graph graph = read_checkpoint(checkpoint);
  const RunData data = open_run_data(recipe);
  check_fits(graph, checkpoint, data);

  const int batch = recipe.evaluate.batch_size;
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<NamedProgram> named;
  const auto add = [&](const std::string& name, std::unique_ptr<Program> program) {
    programs.push_back(std::move(program));
    named.push_back({name, programs.back().get()});
  };
  if (std::unique_ptr<Program> trained = trained_program(recipe, directory)) add("qat_graph", std::move(trained));
  CompileOptions compile;
  compile.max_batch = batch;
  compile.threads = options.threads.value_or(recipe.threads);
  for (const Engine* engine : engines()) {
    const std::string name(engine->name());
    const bool wanted = options.engines.empty() ||
                        std::find(options.engines.begin(), options.engines.end(), name) != options.engines.end();
    if (wanted) add(name, engine->compile(graph, compile));
  }
  for (const std::string& name : options.engines)
    find_engine(name);  // an unknown name is an error that lists the known
  if (named.size() < 2)
    throw usage_error("compare needs two programs: name more engines, or use a build with training");

  const Comparison comparison = octet::compare(graph, named, data.evaluation_set(options.images), batch);
  print_result(common, describe(comparison), [&] { return json(comparison); });
  return comparison.identical() ? ExitCode::ok : ExitCode::promise;
}

}  // namespace

void add_compare(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("compare", "layer by layer: does every engine give the trained codes?");
  command->add_option("RUN", options->run, "a run directory")->required();
  command->add_option("--checkpoint", options->checkpoint, "another int8.safetensors than the run's");
  command->add_option("--engine", options->engines, "only these engines (default: all)")->delimiter(',');
  command->add_option("--images", options->images, "only the first N validation images")->check(CLI::PositiveNumber);
  command->add_option("--threads", options->threads, "0: all cores (default: the recipe's)")
      ->check(CLI::Range(0, 1024));
  command->callback([&common, &action, options] { action = [&common, options] { return compare(common, *options); }; });
}

}  // namespace octet::cli
