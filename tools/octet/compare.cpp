// SPDX-License-Identifier: Apache-2.0
// octet compare RUN: is what runs what was trained? Every layer, every code, all engines, over the test images; of a
// checkpoint, whether all engines give the same. With --against: what another runtime makes of the network, also of a
// float one (compare_float.cpp).
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/data/image_files.h"
#include "src/data/memory_dataset.h"
#include "src/data/transform.h"
#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/net/onnx/onnx.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/onnx_runtime.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

constexpr int kPictures = 16, kBatch = 8;  // of a file, unless told otherwise

MemoryDataset random_pictures(const Shape& shape, int count) {
  MemoryImages images{.name = "random pictures", .height = shape.h, .width = shape.w, .channels = shape.c};
  images.pixels.resize(static_cast<size_t>(shape.elements()) * static_cast<size_t>(count));
  Random random({1});
  for (uint8_t& pixel : images.pixels) pixel = static_cast<uint8_t>(random.below(256));
  images.labels.assign(static_cast<size_t>(count), 0);
  images.class_names = {"none"};
  return MemoryDataset(std::move(images));
}

/// Returns the ONNX file that shows the codes: for an .onnx file that file, for a checkpoint what octet export --onnx
/// writes.
ShownCodes model_of(const std::string& checkpoint, const Int8Graph& graph) {
  return checkpoint.ends_with(".onnx") ? show_codes(import_qdq(checkpoint), checkpoint) : show_codes(graph);
}

/// Appends the engines' programs, those that promise equal codes first: the others are compared with the first program.
void add_engines(const Int8Graph& graph, std::vector<std::string> engines, const CompileOptions& options,
                 std::vector<OwnedProgram>& programs) {
  const auto is_exact = [](const std::string& name) { return find_engine(name).exact(); };
  std::stable_partition(engines.begin(), engines.end(), is_exact);
  for (const std::string& name : engines)
    programs.push_back({name, find_engine(name).compile(graph, options), 0, is_exact(name)});
}

/// What runtimes are compared with.
struct Subject {
  const std::string& checkpoint;
  const Int8Graph& graph;
  const std::vector<std::string>& engines;
  const CompileOptions& compile;
};

/// Counts where the engines' and runtimes' codes differ on the images.
Comparison count(const Subject& subject, const std::vector<std::string>& against, const EvaluationSet& pictures) {
  std::vector<OwnedProgram> programs;
  add_engines(subject.graph, subject.engines, subject.compile, programs);
  const ShownCodes model = against.empty() ? ShownCodes{} : model_of(subject.checkpoint, subject.graph);
  for (const std::string& name : against)
    programs.push_back(
        {name, start_onnx_runtime(subject.graph, model, name, subject.compile.threads), 0, false, shown_by(model)});
  return octet::compare(subject.graph, named(programs), pictures, subject.compile.max_batch);
}

/// Compares the engines with each other and with the runtimes, for a file, over its images or random ones.
Comparison compare_file(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  const bool random = options.pictures.empty();
  MeasuredRun run =
      open_measured_file(common, options, {against.empty() ? "auto" : "cpu"},
                         [&](const Int8Graph& graph) -> std::shared_ptr<const Dataset> {
                           const Shape& shape = graph.input_shape();
                           const int count = options.images > 0 ? options.images : kPictures;
                           if (random) return std::make_shared<MemoryDataset>(random_pictures(shape, count));
                           require_pictures(graph);
                           return std::make_shared<ImageList>(options.pictures, shape.c, orientation_of(graph));
                         });
  if (random) run.data.evaluation_transform = evaluation_transform(run.graph.input_shape(), {});
  run.compile.max_batch = kBatch;
  const long limit = options.images > 0 ? options.images : kPictures;
  return count({run.checkpoint, run.graph, run.engines, run.compile}, against, run.data.test_images(limit));
}

/// Compares engines (default: cpu) with the runtimes of `against`, which promise nothing, on a run's test images.
Comparison compare_against(const Common& common, const MeasureOptions& options,
                           const std::vector<std::string>& against) {
  const MeasuredRun run = open_measured_run(common, options, {"cpu"});
  return count({run.checkpoint, run.graph, run.engines, run.compile}, against, run.data.test_images(options.images));
}

nlohmann::json constants_json(const DerivedConstants& constants) {
  if (!constants.derived) return nullptr;
  nlohmann::json first = nlohmann::json::array();
  for (const WrongConstant& wrong : constants.first) {
    first.push_back({{"node", wrong.node},
                     {"what", wrong.what},
                     {"index", wrong.index < 0 ? nlohmann::json() : nlohmann::json(wrong.index)},
                     {"stored", wrong.stored},
                     {"expected", wrong.expected}});
  }
  return {{"derived", constants.count()}, {"wrong", constants.wrong}, {"first_wrong", first}};
}

std::string json(const Comparison& comparison) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerDifference& layer : comparison.layers) {
    nlohmann::json differing = layer.differing, largest = layer.largest_lsb;
    for (size_t p = 0; p < differing.size(); ++p)
      if (!layer.shown_by(p)) differing[p] = largest[p] = nullptr;
    layers.push_back(
        {{"layer", layer.layer}, {"codes", layer.codes}, {"differing", differing}, {"largest_lsb", largest}});
    if (layer.is_logits) layers.back().update({{"signal", layer.signal}, {"noise", layer.noise}});
  }
  const nlohmann::json identical =
      comparison.promised() || comparison.broken() ? nlohmann::json(comparison.identical()) : nullptr;
  return nlohmann::json{{"identical", identical},
                        {"verdict", verdict(comparison)},
                        {"programs", comparison.programs},
                        {"exact", comparison.exact},
                        {"images", comparison.images},
                        {"program_images", comparison.program_images},
                        {"differing_predictions", comparison.differing_predictions},
                        {"constants", constants_json(comparison.constants)},
                        {"layers", layers}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Compares the engines with what was trained, and the constants with those derived from it.
Comparison compare_trained(const Common& common, const MeasureOptions& options) {
  const MeasuredRun run = open_measured_run(common, options, {"auto"});
  auto [programs, constants] = trained_side(run.recipe, run.directory, common.device, run.graph);
  add_engines(run.graph, run.engines, run.compile, programs);
  if (programs.size() < 2)
    throw usage_error("compare needs two programs: name more engines, or use a build with training");
  Comparison comparison =
      octet::compare(run.graph, named(programs), run.data.test_images(options.images), run.recipe.evaluate.batch_size);
  comparison.constants = std::move(constants);
  return comparison;
}

ExitCode compare(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  if (is_float_file(common, options)) return compare_float(common, options, against);
  const Comparison comparison = is_measured_file(options) ? compare_file(common, options, against)
                                : against.empty()         ? compare_trained(common, options)
                                                          : compare_against(common, options, against);
  print_result(common, describe(comparison), [&] { return json(comparison); });
  return comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<MeasureOptions>();
  auto against = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "compare", "layer by layer: do codes and constants of every engine follow from what was trained?");
  add_measure_options(*command, *options, "all that can run here and promise the trained codes");
  command->get_option("RUN")->description("a run directory, " + checkpoint_help() +
                                          ", or with --against and --images a float .onnx file");
  command
      ->add_option("--against", *against,
                   "onnxruntime, onnxruntime_unfused: counts what a Python with it (OCTET_PYTHON) makes of the network")
      ->delimiter(',')
      ->check(CLI::IsMember({kOnnxRuntime, kOnnxRuntimeUnfused}));
  command->callback([&common, &action, options, against] {
    action = [&common, options, against] { return compare(common, *options, *against); };
  });
}

}  // namespace octet::cli
