// octet evaluate RUN: the accuracy table of a finished run, measured again.
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "src/eval/report.h"
#include "src/eval/run_data.h"
#include "src/eval/run_directory.h"
#include "src/graph/checkpoint.h"
#include "tools/octet/commands.h"
#include "tools/octet/machine.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

struct Options {
  std::string run, checkpoint;
  std::vector<std::string> engines;
  int images = 0, threads = 0;
  bool all = false;
};

ExitCode evaluate(const Common& common, const Options& options) {
  const RunDirectory directory = run_directory(options.run);
  const Recipe recipe = read_recipe(directory.recipe(), common.set);
  const std::string checkpoint = options.checkpoint.empty() ? directory.int8(recipe.export_.file) : options.checkpoint;
  const Int8Graph graph = read_checkpoint(checkpoint);
  const RunData data = open_run_data(recipe);
  if (graph.classes() != data.classes()) {
    throw usage_error(fmt::format("{} has {} classes, the data set {}", checkpoint, graph.classes(), data.classes()));
  }
  std::vector<size_t> indices = data.validation;
  if (options.images > 0) indices.resize(std::min<size_t>(indices.size(), options.images));

  std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
  if (options.all) programs = all_trained_programs(directory);
  CompileOptions compile;
  compile.max_batch = recipe.evaluate.batch_size;
  compile.threads = options.threads;
  for (const std::string& name : options.engines.empty() ? recipe.evaluate.engines : options.engines) {
    programs.emplace_back(name, find_engine(name).compile(graph, compile));
  }

  Report report;
  report.title = recipe.model.name;
  report.model = graph.name;
  report.machine = cpu_model();
  report.recipe_hash = graph.recipe_hash;
  report.command = common.command_line;
  report.multiply_adds = multiply_adds(graph);
  EvaluateOptions how;
  how.batch_size = recipe.evaluate.batch_size;
  how.classes = graph.classes();
  const EvaluationSet set{data.validation_set.get(), indices, data.evaluation_transform, data.workers};
  for (auto& [name, program] : programs) {
    Row row{octet::evaluate(name, *program, set, how)};
    const bool engine = name != "float" && name != "simulation" && name != "qat_graph";
    if (engine) row.bytes = static_cast<long>(std::filesystem::file_size(checkpoint));
    report.rows.push_back(std::move(row));
  }
  print_result(common, report_table(report), [&] { return report_json(report); });
  return ExitCode::ok;
}

}  // namespace

void add_evaluate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("evaluate", "accuracy and speed of a run's checkpoint on its validation set");
  command->add_option("RUN", options->run, "a run directory")->required();
  command->add_option("--checkpoint", options->checkpoint, "another int8.safetensors than the run's");
  command->add_option("--engine", options->engines, "engines (default: the recipe's)")->delimiter(',');
  command->add_option("--images", options->images, "only the first N validation images")->check(CLI::PositiveNumber);
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024));
  command->add_flag("--all", options->all, "float network, simulation and QAT graph too");
  command->callback(
      [&common, &action, options] { action = [&common, options] { return evaluate(common, *options); }; });
}

}  // namespace octet::cli
