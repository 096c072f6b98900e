// SPDX-License-Identifier: Apache-2.0
// octet evaluate RUN: the accuracy table of a finished run, measured again.
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "src/engine/engine.h"
#include "src/report/headline.h"
#include "src/report/report.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

struct Options : MeasureOptions {
  bool all = false;
};

ExitCode evaluate(const Common& common, const Options& options) {
  const MeasuredRun run = open_measured_run(common, options);
  std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
  if (options.all) programs = all_trained_programs(run.recipe, run.directory, common.device);
  for (const std::string& name : run.engines) {
    programs.emplace_back(name, find_engine(name).compile(run.graph, run.compile));
  }

  Report report;
  report.labels = run.data.task().labels;
  report.title = run.recipe.model.name;
  report.model = run.graph.name;
  report.machine = machine_model();
  report.recipe_hash = run.graph.recipe_hash;
  report.command = common.command_line;
  report.multiply_adds = multiply_adds(run.graph);
  EvaluateOptions how;
  how.batch_size = run.recipe.evaluate.batch_size;
  how.classes = run.data.classes();
  for (auto& [name, program] : programs) {
    // The reference is slow: unless told otherwise it runs as many images as in training.
    const long images =
        options.images > 0 || name != "reference" ? options.images : run.recipe.evaluate.reference_images;
    Row row{octet::evaluate(name, *program, run.data.test_images(images), how)};
    if (is_engine_row(name)) row.bytes = static_cast<long>(std::filesystem::file_size(run.checkpoint));
    report.rows.push_back(std::move(row));
  }
  count_differing(report.rows);
  print_result(common, report_table(report), [&] { return report_json(report); });
  return ExitCode::ok;
}

}  // namespace

void add_evaluate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("evaluate", "accuracy and speed of a run's checkpoint on its test images");
  add_measure_options(*command, *options, "the recipe's");
  command->add_flag("--all", options->all, "float network, simulation and QAT graph too");
  command->callback(
      [&common, &action, options] { action = [&common, options] { return evaluate(common, *options); }; });
}

}  // namespace octet::cli
