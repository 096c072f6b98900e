// SPDX-License-Identifier: Apache-2.0
// octet evaluate RUN: the accuracy table of a finished run, measured again; or of a checkpoint or ONNX file, on class
// folders, and with --boxes the AP of a detector.
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/data/dataset.h"
#include "src/data/transform.h"
#include "src/engine/engine.h"
#include "src/report/report.h"
#include "tools/octet/boxes.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

struct EvaluateCommand : MeasureOptions {
  bool all = false;
  BoxEvaluation boxes;
  std::string classes;  ///< the file that names the class folders
};

/// Opens the folder or .tar of class folders that --images names, for a network with these classes.
std::shared_ptr<const Dataset> labelled_images(const EvaluateCommand& options, const Int8Graph& graph) {
  require_images(graph);
  const int classes = graph.classes();
  if (options.image_paths.size() != 1)
    throw usage_error("evaluate: of a file give --images FOLDER, a folder or .tar with a folder of each class");
  const std::shared_ptr<const Dataset> images =
      open_dataset({.format = "image_folder",
                    .path = options.image_paths.front(),
                    .classes = options.classes,
                    .class_names = options.classes.empty() ? graph.class_names : std::vector<std::string>{},
                    .channels = graph.input_shape().c,
                    .orientation = orientation_of(graph)});
  if (const size_t found = images->class_names().size(); found != static_cast<size_t>(classes))
    throw usage_error(fmt::format(
        "{}: {} classes, {} has {}: --classes-file FILE names the folder of each class, a line a class, in their order",
        options.classes.empty() ? options.image_paths.front() : options.classes, found, options.run, classes));
  return images;
}

ExitCode evaluate(const Common& common, const EvaluateCommand& options) {
  const bool file = is_measured_file(options);
  if (!options.boxes.annotations.empty()) {
    BoxEvaluation boxes = options.boxes;
    boxes.classes = options.classes;
    if (!file || options.all || !options.checkpoint.empty() || !common.set.empty())
      throw usage_error("--boxes: the AP of a checkpoint or .onnx file, without --all, --checkpoint and --set");
    return evaluate_boxes(common, options, boxes);
  }
  if (!options.boxes.detections.empty() || options.boxes.skip_missing)
    throw usage_error("--detections and --skip-missing: belong to --boxes ANNOTATIONS");
  if (file && options.all) throw usage_error("--all: a file holds one network only; give the run directory");
  if (!file && !options.classes.empty()) throw usage_error("--classes-file: belongs to a checkpoint with --images");
  MeasuredRun run = file ? open_measured_file(common, options, {"cpu"},
                                              [&](const Int8Graph& graph) { return labelled_images(options, graph); })
                         : open_measured_run(common, options);
  std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
  if (options.all) programs = all_trained_programs(run.recipe, run.directory, common.device);
  const bool is_float = run.float_file.program != nullptr;
  if (is_float) programs.emplace_back("float", std::move(run.float_file.program));
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
  report.multiply_adds = is_float ? run.float_file.multiply_adds : multiply_adds(run.graph);
  EvaluateOptions how;
  how.batch_size = run.recipe.evaluate.batch_size;
  how.classes = run.data.classes();
  for (auto& [name, program] : programs) {
    // The reference is slow: unless told otherwise it runs as many images as in training.
    const long images =
        options.images > 0 || name != "reference" ? options.images : run.recipe.evaluate.reference_images;
    Row row{octet::evaluate(name, *program, run.data.test_images(images), how)};
    if (is_engine_row(name) || file) row.bytes = static_cast<long>(std::filesystem::file_size(run.checkpoint));
    report.rows.push_back(std::move(row));
  }
  count_differing(report.rows);
  report.differences = differences(report);
  print_result(common, report_table(report), [&] { return report_json(report); });
  return ExitCode::ok;
}

}  // namespace

void add_evaluate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<EvaluateCommand>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "accuracy and speed of a run's checkpoint on its test images, or of a file on yours");
  add_measure_options(*command, *options, "the recipe's");
  command->add_option("--classes-file", options->classes,
                      "of a file: the class folders, one a line, in the order of the network's classes; with "
                      "--boxes the names of these classes");
  command->add_option("--boxes", options->boxes.annotations,
                      "of a detector's checkpoint or float .onnx: AP against these annotations in COCO's JSON");
  command->add_option("--detections", options->boxes.detections,
                      "with --boxes: write what was found, as COCO's tools read results (.json)");
  command->add_flag("--skip-missing", options->boxes.skip_missing,
                    "with --boxes: leave out images that are not in the folder");
  command->add_flag("--all", options->all, "float network, simulation and QAT graph too");
  command->callback(
      [&common, &action, options] { action = [&common, options] { return evaluate(common, *options); }; });
}

}  // namespace octet::cli
