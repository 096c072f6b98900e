// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/measure.h"

#include <fmt/core.h>

#include <filesystem>

#include "src/base/progress.h"
#include "src/detect/draw.h"
#include "src/engine/fusion.h"
#include "src/eval/derive_constants.h"
#include "src/eval/metrics.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/import.h"
#include "src/quant/convert.h"
#include "src/report/headline.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/quantization_noise.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

constexpr std::string_view kReference = "reference";
constexpr long kShownImages = 6;

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

/// Returns the class that the program gives each pixel of one image.
std::vector<int> answers(Program& program, const uint8_t* image, const Task& task) {
  const auto classes = static_cast<size_t>(task.classes());
  std::vector<float> logits(task.answers() * classes);
  program.run(image, 1, logits.data());
  std::vector<int> found;
  for (size_t i = 0; i < task.answers(); ++i) found.push_back(arg_max(std::span(logits).subspan(i * classes, classes)));
  return found;
}

/// Returns the first test images with labels of pixels, and what two networks classify them as. before, int8: programs
/// of the float and the int8 network.
std::vector<ReportPicture> shown_pictures(const RunData& data, Program& before, Program& int8) {
  const Task task = data.task();
  const EvaluationSet set = data.test_images(kShownImages);
  Loader loader(*set.dataset, set.indices, set.transform, {.batch_size = 1, .workers = 0});
  std::vector<ReportPicture> pictures;
  for (Batch batch; loader.next(batch);) {
    ReportPicture picture{.name = set.dataset->describe(batch.indices.front()),
                          .image = {set.transform.height, set.transform.width, set.transform.channels, {}}};
    picture.image.pixels.assign(batch.images.begin(), batch.images.end());
    picture.truth.assign(batch.labels.begin(), batch.labels.end());
    picture.before = answers(before, batch.images.data(), task);
    picture.int8 = answers(int8, batch.images.data(), task);
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

/// Returns an image of at most kShownSide pixels a side with boxes drawn.
Image drawn(const Image& image, const std::vector<Detection>& found, const std::vector<std::string>& class_names) {
  constexpr double kShownSide = 360;
  const double scale = std::min(1.0, kShownSide / std::max(image.height, image.width));
  const auto side = [&](int pixels) { return std::max(1, static_cast<int>(pixels * scale)); };
  std::vector<Detection> shown;
  for (Detection d : found) {
    if (d.score < kShownScore) continue;
    d.box = {d.box.x * scale, d.box.y * scale, d.box.width * scale, d.box.height * scale};
    shown.push_back(d);
  }
  return draw_boxes(resize(view(image), side(image.height), side(image.width)), shown, class_names);
}

/// Returns the test images with labels on which an int8 network is furthest below the float network, then those on
/// which it finds least.
std::vector<ReportBoxes> worst_pictures(const RunData& data, const Evaluation& before, const Evaluation& int8) {
  struct Judged {
    size_t image;
    double before, int8;
  };
  std::vector<Judged> all;
  for (size_t i = 0; i < std::min(before.boxes.size(), int8.boxes.size()); ++i) {
    const auto ap = [&](const Evaluation& of) { return mean_average_precision({&of.boxes[i], 1}, data.classes()); };
    if (const double own = ap(int8); !std::isnan(own)) all.push_back({i, ap(before), own});
  }
  constexpr double kFar = 0.05;  // below float
  const auto place = [](const Judged& of) {
    const double lost = of.before - of.int8;
    return lost > kFar ? -lost : of.int8;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Judged& a, const Judged& b) { return place(a) < place(b); });
  all.resize(std::min<size_t>(all.size(), kShownImages));
  std::vector<ReportBoxes> pictures;
  const EvaluationSet set = data.test_images();
  for (const Judged& of : all) {
    const size_t index = set.indices[of.image];
    const Image image = set.dataset->read(index);
    std::vector<Detection> labels;
    for (const BoxLabel& label : set.dataset->boxes(index)) labels.push_back({label.box, label.class_index, 1});
    const auto with = [&](const std::vector<Detection>& found) {
      return drawn(image, found, data.train_set->class_names());
    };
    pictures.push_back({set.dataset->describe(index), with(labels), with(before.boxes[of.image].detections),
                        with(int8.boxes[of.image].detections), of.before, of.int8});
  }
  return pictures;
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
  if (run.data.task().pixels()) {
    const std::unique_ptr<Program> network = float_program(run.graph, load_float(run), run.preprocessing);
    report.pictures = shown_pictures(run.data, *network, *engines.front().program);
  }
  if (run.data.detector)
    report.boxes = worst_pictures(run.data, report.rows.front().evaluation, int8_row(report)->evaluation);
  report.comparison = compare_all(run, model, std::move(engines), graph);
  return report;
}

}  // namespace octet
