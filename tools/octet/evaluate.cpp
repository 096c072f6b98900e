// octet evaluate RUN: the accuracy table of a finished run, measured again.
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

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
  int images = 0;
  std::optional<int> threads;
  bool all = false;
};

void count_differing(std::vector<Row>& rows) {
  const auto graph =
      std::find_if(rows.begin(), rows.end(), [](const Row& r) { return r.evaluation.name == "qat_graph"; });
  if (graph == rows.end()) return;
  for (Row& row : rows)
    if (&row != &*graph) row.differing = differing_predictions(row.evaluation, graph->evaluation);
}

ExitCode evaluate(const Common& common, const Options& options) {
  const RunDirectory directory = run_directory(options.run);
  const Recipe recipe = recipe_of(directory, common.set);
  const std::string checkpoint = checkpoint_of(options.checkpoint.empty() ? directory.root : options.checkpoint);
  const Int8Graph graph = read_checkpoint(checkpoint);
  const RunData data = open_run_data(recipe);
  check_fits(graph, checkpoint, data);

  std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
  if (options.all) programs = all_trained_programs(recipe, directory);
  CompileOptions compile;
  compile.max_batch = recipe.evaluate.batch_size;
  compile.threads = options.threads.value_or(recipe.threads);
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
  for (auto& [name, program] : programs) {
    // The reference is slow: unless told otherwise it runs as many images as in training.
    const long images = options.images > 0 || name != "reference" ? options.images : recipe.evaluate.reference_images;
    Row row{octet::evaluate(name, *program, data.evaluation_set(images), how)};
    const bool engine = name != "float" && name != "simulation" && name != "qat_graph";
    if (engine) row.bytes = static_cast<long>(std::filesystem::file_size(checkpoint));
    report.rows.push_back(std::move(row));
  }
  count_differing(report.rows);
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
  command->add_option("--threads", options->threads, "0: all cores (default: the recipe's)")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--all", options->all, "float network, simulation and QAT graph too");
  command->callback(
      [&common, &action, options] { action = [&common, options] { return evaluate(common, *options); }; });
}

}  // namespace octet::cli
