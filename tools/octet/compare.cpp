// SPDX-License-Identifier: Apache-2.0
// octet compare RUN: is what runs what was trained? Every layer, every code, all engines, over the test images; of a
// checkpoint, whether all engines give the same. With --against: what another runtime makes of the network; of a float
// one, whether the runtime reads the same network in the file, output by output, since float sums have no codes that
// could be equal.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/data/image_files.h"
#include "src/data/loader.h"
#include "src/data/memory_dataset.h"
#include "src/data/transform.h"
#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/eval/metrics.h"
#include "src/net/onnx/onnx.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/onnx_runtime.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

constexpr int kComparedImages = 16, kBatch = 8;  // of a file, unless told otherwise

MemoryDataset random_images(const Shape& shape, int count) {
  MemoryImages images{.name = "random images", .height = shape.h, .width = shape.w, .channels = shape.c};
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
Comparison count(const Subject& subject, const std::vector<std::string>& against, const EvaluationSet& images) {
  std::vector<OwnedProgram> programs;
  add_engines(subject.graph, subject.engines, subject.compile, programs);
  const ShownCodes model = against.empty() ? ShownCodes{} : model_of(subject.checkpoint, subject.graph);
  for (const std::string& name : against)
    programs.push_back(
        {name, start_onnx_runtime(subject.graph, model, name, subject.compile.threads), 0, false, shown_by(model)});
  return octet::compare(subject.graph, named(programs), images, subject.compile.max_batch);
}

/// Compares the engines with each other and with the runtimes, for a file, over its images or random ones.
Comparison compare_file(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  const bool random = options.image_paths.empty();
  MeasuredRun run =
      open_measured_file(common, options, {against.empty() ? "auto" : "cpu"},
                         [&](const Int8Graph& graph) -> std::shared_ptr<const Dataset> {
                           const Shape& shape = graph.input_shape();
                           const int count = options.images > 0 ? options.images : kComparedImages;
                           if (random) return std::make_shared<MemoryDataset>(random_images(shape, count));
                           require_images(graph);
                           return std::make_shared<ImageList>(options.image_paths, shape.c, orientation_of(graph));
                         });
  if (random) run.data.evaluation_transform = evaluation_transform(run.graph.input_shape(), {});
  run.compile.max_batch = kBatch;
  const long limit = options.images > 0 ? options.images : kComparedImages;
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

/// How a runtime's output differs from octet's.
struct OutputDifference {
  double signal = 0, noise = 0;       ///< sums of squares: of octet's values, and of what the runtime's differ by
  double largest = 0, magnitude = 0;  ///< largest |difference|, largest |value| of octet's
  long answers = 0, same = 0;         ///< pixels or images, and how many have the same largest channel
  void add(std::span<const float> octets, std::span<const float> others, size_t channels) {
    for (size_t i = 0; i < octets.size(); ++i) {
      const double value = octets[i], difference = std::abs(value - others[i]);
      signal += value * value;
      noise += difference * difference;
      largest = difference > largest || std::isnan(difference) ? difference : largest;
      magnitude = std::max(magnitude, std::abs(value));
    }
    for (size_t i = 0; i < octets.size(); i += channels, ++answers)
      same += arg_max(octets.subspan(i, channels)) == arg_max(others.subspan(i, channels));
  }

  double sqnr_db() const { return 10 * std::log10(signal / noise); }
};

std::span<const float> floats_of(const std::vector<uint8_t>& bytes, size_t count) {
  return {reinterpret_cast<const float*>(bytes.data()), count};
}

/// Returns the differences by runtime and output.
std::vector<std::vector<OutputDifference>> differences(const FloatFile& file, const MeasureOptions& options,
                                                       const std::vector<std::string>& against, size_t& images) {
  const ShownCodes model = show_outputs(options.run, file.outputs);
  std::vector<std::unique_ptr<Program>> runtimes;
  for (const std::string& name : against)
    runtimes.push_back(start_onnx_runtime(file.ends, model, name, options.threads.value_or(0)));
  const ImageList list(options.image_paths, file.ends.input_shape().c, orientation_of(file.ends));
  for (const std::string& note : list.notes()) say("note: " + note);
  std::vector<size_t> chosen(
      std::min<size_t>(list.size(), static_cast<size_t>(options.images > 0 ? options.images : kComparedImages)));
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  images = chosen.size();
  Loader loader(list, chosen, evaluation_transform(file.ends.input_shape(), file.ends.preprocessing),
                {.batch_size = kBatch});
  const OutputBuffers ours(file.ends, kBatch), theirs(file.ends, kBatch);
  std::vector<std::vector<OutputDifference>> found(runtimes.size(),
                                                   std::vector<OutputDifference>(file.ends.outputs.size()));
  Progress progress("compare", static_cast<long>(chosen.size()), "images");
  long done = 0;
  for (Batch batch; loader.next(batch); progress.update(done += batch.size)) {
    file.program->run(batch.images.data(), batch.size, ours.memory());
    for (size_t r = 0; r < runtimes.size(); ++r) {
      runtimes[r]->run(batch.images.data(), batch.size, theirs.memory());
      for (size_t o = 0; o < found[r].size(); ++o) {
        const Shape& shape = file.ends.nodes[static_cast<size_t>(file.ends.outputs[o])].shape;
        const auto count = static_cast<size_t>(shape.elements()) * static_cast<size_t>(batch.size);
        found[r][o].add(floats_of(ours[o], count), floats_of(theirs[o], count), static_cast<size_t>(shape.c));
      }
    }
    throw_if_interrupted();
  }
  return found;
}

/// Compares the outputs of a float .onnx file as LibTorch computes them with those of the runtimes.
ExitCode compare_float(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  if (against.empty())
    throw usage_error(fmt::format(
        "{}: is a float network: it has no codes, and no engine runs it, so there is nothing to prove; --against "
        "onnxruntime shows whether ONNX Runtime reads the same network in it, octet quantize makes int8 of it",
        options.run));
  const FloatFile file = float_file(common, options, /*boxes=*/false);
  if (!file.unlike.empty())
    throw usage_error(fmt::format(
        "{}: {}, so its values are not octet's: --against compares what is the same in both; {}", options.run,
        file.unlike, "end the network before that by --outputs, or export it with [N, C, H, W] from end to end"));
  size_t images = 0;
  const auto found = differences(file, options, against, images);
  TextTable table({{"output", Align::left},
                   {"shape", Align::left},
                   {"against", Align::left},
                   {"signal to difference"},
                   {"largest difference"},
                   {"largest value"},
                   {"same class"}});
  nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
  for (size_t r = 0; r < against.size(); ++r)
    for (size_t o = 0; o < found[r].size(); ++o) {
      const OutputDifference& d = found[r][o];
      const Int8Node& node = file.ends.nodes[static_cast<size_t>(file.ends.outputs[o])];
      const double same = static_cast<double>(d.same) / static_cast<double>(d.answers);
      table.add_row({printable(node.name), fmt::format("{}x{}x{}", node.shape.c, node.shape.h, node.shape.w),
                     against[r], decibels(d.sqnr_db()), fmt::format("{:.3g}", d.largest),
                     fmt::format("{:.3g}", d.magnitude), node.shape.c > 1 ? percent(same, 1) : ""});
      outputs.push_back({{"output", node.name},
                         {"against", against[r]},
                         {"signal_to_difference_db", d.sqnr_db()},
                         {"largest_difference", d.largest},
                         {"largest_value", d.magnitude},
                         {"same_class", same}});
    }
  print_result(common,
               fmt::format("the float network as octet reads and LibTorch computes it, over {}\n\n{}",
                           counted(static_cast<long>(images), "image"), table.render()),
               [&] {
                 return nlohmann::ordered_json{{"network", options.run}, {"images", images}, {"outputs", outputs}}.dump(
                     2, ' ', false, nlohmann::json::error_handler_t::replace);
               });
  return ExitCode::ok;
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
