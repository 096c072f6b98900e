// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "src/base/progress.h"
#include "src/engine/fusion.h"
#include "src/eval/derive_constants.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/quant/convert.h"
#include "src/report/report.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/quantization_noise.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

constexpr std::string_view kReference = "reference";

CompileOptions compile_options(const Run& run) {
  return {.max_batch = run.recipe.evaluate.batch_size,
          .threads = run.recipe.threads,
          .fallback = run.recipe.evaluate.fallback};
}

/// Returns how many test images an engine runs; 0: all.
long images_for(const Run& run, const std::string& engine) {
  return engine == kReference ? run.recipe.evaluate.reference_images : 0;
}

/// Returns the first calibration images, for the statistics of the layers. All values of all layers are counted on the
/// CPU: of hundreds of images that takes seconds.
at::Tensor statistics_images(const Run& run) {
  constexpr int kEnough = 64;
  Loader loader(*run.data.train_set, run.data.calibration, run.data.evaluation_transform,
                {.batch_size = std::min(kEnough, run.recipe.calibrate.batch_size), .workers = 0});
  Batch batch;
  loader.next(batch);
  return network_input(batch, run.data, run.device);
}

/// Returns the layers of the report: their statistics and the kernels that run them. engines: programs of `graph`, the
/// int8 network.
std::vector<ReportLayer> layers_with_kernels(const Run& run, const QuantizedModel& model, const Int8Graph& graph,
                                             const std::vector<OwnedProgram>& engines) {
  std::vector<ReportLayer> layers;
  for (LayerStatistics& statistics : layer_statistics(model, statistics_images(run))) {
    for (const int output : graph.outputs)  // whose name may be another in the checkpoint
      if (statistics.name == model.prepared().graph.nodes[output].name) statistics.name = graph.nodes[output].name;
    layers.push_back({std::move(statistics), {}});
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    if (i == 0 || find_engine(engines[i].name).on_gpu())
      add_kernels(layers, engines[i].name, say_where_merged(graph, engines[i].program->layers()));
  }
  return layers;
}

/// Returns the rows of the phases' networks on the test images. From here on nothing is chosen any more.
std::vector<Row> measure_phases(const Run& run, const QuantizedModel& model, Program& ptq) {
  const EvaluationSet test = run.data.test_images();
  const std::string quantized = run.directory.quantized();
  std::vector<Row> rows;
  rows.push_back(measure(run, "float", *float_program(run.graph, load_float(run), run.preprocessing), test,
                         run.directory.float_weights()));
  if (run.recipe.qat.float_control) {
    rows.push_back(measure(run, "float_control", *float_program(run.graph, load_float_control(run), run.preprocessing),
                           test, run.directory.float_control()));
  }
  rows.push_back(measure(run, "ptq", ptq, test));
  rows.push_back(measure(run, "simulation", *simulation_program(model, run.preprocessing), test, quantized));
  rows.push_back(measure(run, "qat_graph", *qat_graph_program(model, run.preprocessing), test, quantized));
  return rows;
}

/// Writes the int8 checkpoint, without accuracies, and reads it again: what is measured is what ships.
Int8Graph write_int8(const Run& run, const QuantizedModel& model, const std::string& file) {
  if (run.writes()) write_checkpoint(file, to_int8(run, model));
  if (run.ranks) run.ranks->meet();
  return read_checkpoint(file);
}

std::vector<OwnedProgram> compile_engines(const Run& run, const EngineNames& engines, const Int8Graph& graph) {
  std::vector<OwnedProgram> programs;
  for (const std::string& engine : engines)
    programs.push_back(
        {engine, compile_engine(run, engine, graph), images_for(run, engine), find_engine(engine).exact()});
  return programs;
}

/// Adds a row for each engine. The accuracies of all rows go into the checkpoint, whose size is the engines' rows'
/// bytes.
void measure_engines(const Run& run, const std::vector<OwnedProgram>& engines, Int8Graph graph, const std::string& file,
                     std::vector<Row>& rows) {
  const size_t first = rows.size();
  for (const OwnedProgram& engine : engines)
    rows.push_back(measure(run, engine.name, *engine.program, run.data.test_images(engine.images)));
  if (!run.writes()) return;
  count_differing(rows);
  for (const Row& row : rows) graph.accuracies[accuracy_key(row.evaluation)] = row.evaluation.score();
  write_checkpoint(file, graph);
  for (size_t i = first; i < rows.size(); ++i) rows[i].bytes = static_cast<long>(std::filesystem::file_size(file));
}

/// Compares the codes of the QAT graph with those of the other trained_programs() and the engines over the test images.
/// The reference engine runs the first evaluate.reference_images, if that is set.
Comparison compare_all(const Run& run, const QuantizedModel& model, std::vector<OwnedProgram> engines,
                       const Int8Graph& graph) {
  std::vector<OwnedProgram> programs = trained_programs(run, model);
  for (OwnedProgram& engine : engines) programs.push_back(std::move(engine));
  Comparison comparison = compare(graph, named(programs), run.data.test_images(), run.recipe.evaluate.batch_size);
  comparison.constants = derived_constants(run, model, graph);
  return comparison;
}

}  // namespace

EngineNames engines_of(const Recipe& recipe, at::Device device) {
  const bool kept_off = !device.is_cuda() && choose_device("auto").is_cuda();
  return resolve_engines(recipe.evaluate.engines, kept_off ? EngineDevices::cpu : EngineDevices::any);
}

void require_engines_take_it(const Run& run, const EngineNames& engines) {
  // Random weights suffice: engines look at shapes, operators and kinds of codes.
  const Int8Graph network = random_int8_graph(run.graph, quant_spec(run.recipe.quant), 1);
  for (const std::string& engine : engines) find_engine(engine).check(network, compile_options(run));
}

Row measure(const Run& run, const std::string& name, Program& program, const EvaluationSet& images,
            const std::string& file) {
  Row row;
  row.evaluation = evaluate(name, program, images,
                            {.classes = run.data.classes(),
                             .batch_size = run.recipe.evaluate.batch_size,
                             .latency_images = run.recipe.evaluate.latency_images});
  if (!file.empty()) row.bytes = static_cast<long>(std::filesystem::file_size(file));
  say(fmt::format("{}: {} {:.2f} % of {} {} images", name, score_names(row.evaluation.task.labels).score,
                  100 * row.evaluation.score(), row.evaluation.images, images.name));
  return row;
}

Int8Graph to_int8(const Run& run, const QuantizedModel& model) {
  Int8Graph graph = model.convert(run.preprocessing, {});
  graph.class_names = run.data.train_set->class_names();
  if (run.data.detector) graph.boxes = run.data.detector->head;
  graph.recipe_hash = recipe_hash(run.recipe);
  if (!run.graph.file_outputs.empty()) name_outputs(graph, run.graph.file_outputs);
  return graph;
}

std::unique_ptr<Program> compile_engine(const Run& run, const std::string& engine, const Int8Graph& graph) {
  release_cached(run.device);  // engines allocate outside LibTorch
  return find_engine(engine).compile(graph, compile_options(run));
}

std::vector<OwnedProgram> trained_programs(const Run& run, const QuantizedModel& model) {
  const Preprocessing& preprocessing = run.preprocessing;
  std::vector<OwnedProgram> programs;
  programs.push_back({"qat_graph", qat_graph_program(model, preprocessing)});
  programs.push_back({"simulation", simulation_program(model, preprocessing), kCountedImages, /*exact=*/false});
  if (run.recipe.qat.epochs == 0) return programs;
  const Precision precision = run.recipe.qat.precision;
  programs.push_back({fmt::format("trained_{}", name_in(kPrecisions, precision)),
                      trained_forward_program(model, preprocessing, precision), kCountedImages,
                      /*exact=*/false});
  return programs;
}

DerivedConstants derived_constants(const Run& run, const QuantizedModel& model, const Int8Graph& graph) {
  return derive_constants({.written = quantized_graph(run, model.weights()),
                           .prepared = model.prepared(),
                           .params = float_params(model.used_weights()),
                           .weight_scales = model.weight_scales(),
                           .edges = model.edges(),
                           .preprocessing = run.preprocessing},
                          graph);
}

Report measure_and_report(const Run& run, const QuantizedModel& model, Program& ptq, const EngineNames& engine_names) {
  show_running(run, "measuring on the test images");
  Report report = report_so_far(run);
  report.rows = measure_phases(run, model, ptq);
  const std::string file = run.directory.int8(run.recipe.export_.file);
  const Int8Graph graph = write_int8(run, model, file);
  std::vector<OwnedProgram> engines = compile_engines(run, engine_names, graph);
  measure_engines(run, engines, graph, file, report.rows);
  if (run.writes()) report.layers = layers_with_kernels(run, model, graph, engines);
  const Evaluation &before = report.rows.front().evaluation, &int8 = int8_row(report)->evaluation;
  if (run.data.task().pixels()) report.masks = worst_masks(run.data, before, int8);
  if (run.data.detector) report.boxes = worst_boxes(run.data, before, int8);
  report.comparison = compare_all(run, model, std::move(engines), graph);
  return report;
}

}  // namespace octet
