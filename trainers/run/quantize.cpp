// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/quantize.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/data/image_files.h"
#include "src/net/import/pytorch_file.h"
#include "src/net/onnx/import.h"
#include "src/net/zoo.h"
#include "src/train/model/threads.h"
#include "src/train/repair/channel_scales.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/input_tensors.h"
#include "trainers/run/measure.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr size_t kHeldBack = 32;    // images of each of the two parts that are not calibrated on, at most
constexpr size_t kFewImages = 10;   // below, one image in three is held back for each part, which measures little
constexpr size_t kProofImages = 4;  // engines promise equal codes for every image; a few show it

bool is_onnx_file(const std::string& network) { return network.ends_with(".onnx"); }

/// Throws for a network that has nothing to quantize, or weights that are not finite.
void require_usable(const QuantizeRequest& request, const Graph& graph, const Weights& weights) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return has_weight(node.op); }))
    throw usage_error(fmt::format("{}: no convolution and no linear layer: nothing gains by int8", request.network));
  for (const auto& [name, tensor] : weights)
    if (!tensor.detach().isfinite().all().item<bool>())
      throw data_error(fmt::format("{}: '{}' holds NaN or infinity: the float network is broken",
                                   request.weights.empty() ? request.network : request.weights, name));
}

/// Returns at most `limit` of the images, evenly spaced, without those that cannot be read or are too small for the
/// transform, which are told.
std::vector<size_t> readable(const ImageList& images, size_t limit, const Transform& transform) {
  std::vector<size_t> all(images.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<size_t> usable;
  std::string first;
  for (const size_t index : evenly_spaced(all, std::min(limit, all.size()))) {
    try {
      const Image image = images.read(index);
      check_size({image.height, image.width}, transform, /*training=*/false);
      usable.push_back(index);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      const std::string name = images.describe(index), what = error.what();
      if (first.empty()) first = what.starts_with(name) ? what : name + ": " + what;
    }
    throw_if_interrupted();
  }
  const long bad = static_cast<long>(std::min(limit, all.size()) - usable.size());
  if (usable.empty()) throw data_error(fmt::format("none of {} can be used: {}", counted(bad, "picture"), first));
  if (bad > 0) say(fmt::format("note: {} cannot be used and left out: {}", counted(bad, "picture"), first));
  return usable;
}

/// Deals the images out at random, so that those of one folder do not come into one part. one: "picture" or "input".
void deal(std::vector<size_t> images, const char* one, uint64_t seed, RunData& data) {
  if (images.size() < 3)
    throw data_error(
        fmt::format("{}: some are calibrated on, and others show what is lost; give 10 at least, 100 to "
                    "300 are usual",
                    counted(static_cast<long>(images.size()), one)));
  if (images.size() < kFewImages)
    say(fmt::format("note: {} only: ranges and what is measured depend on chance; 100 to 300 are usual",
                    counted(static_cast<long>(images.size()), one)));
  Random({seed, 41}).shuffle(images);
  const size_t held = std::clamp<size_t>(images.size() / 5, 1, kHeldBack);
  const auto begin = images.begin();
  const auto part = [&](size_t from, size_t to) {
    std::vector<size_t> indices(begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
    std::sort(indices.begin(), indices.end());
    return indices;
  };
  data.validation = part(0, held);
  data.test = part(held, 2 * held);
  data.calibration = data.train = part(2 * held, images.size());
}

Run open(const QuantizeRequest& request, const Graph& graph, at::Device device) {
  Run run{};
  run.recipe.seed = request.seed;
  run.recipe.threads = request.threads;
  run.recipe.quant = request.quant;
  run.recipe.calibrate = request.calibrate;
  run.recipe.calibrate.images = request.limit;
  run.recipe.train.epochs = run.recipe.qat.epochs = 0;
  run.recipe.model.name = is_onnx_file(request.network) ? "onnx" : request.network;
  run.recipe.model.onnx = is_onnx_file(request.network) ? request.network : "";
  run.recipe.model.outputs = request.outputs;
  run.recipe.model.weights = request.weights;
  run.recipe.data.image_size = request.image_size;
  run.device = device;
  set_switches(device, run.recipe.cuda);
  set_threads(request.threads > 0 ? request.threads : usable_cores());
  run.graph = graph;
  run.data.workers = device.is_cpu() ? 1 : usable_cores();
  return run;
}

/// Opens the images of the request and deals them out.
void open_images(const QuantizeRequest& request, Run& run) {
  const Shape& input = run.graph.nodes.front().shape;
  if (input.c != 1 && input.c != 3)
    throw usage_error(
        fmt::format("{}: takes inputs of {} channels; pictures have 1 or 3, and --tensors FILE takes any number",
                    request.network, input.c));
  run.preprocessing = request.preprocessing;
  if (run.preprocessing.mean.size() != static_cast<size_t>(input.c) ||
      run.preprocessing.std.size() != static_cast<size_t>(input.c))
    throw usage_error(fmt::format("{}: takes {} channels, the preprocessing has {} means and {} deviations",
                                  request.network, input.c, run.preprocessing.mean.size(),
                                  run.preprocessing.std.size()));
  const auto images = std::make_shared<ImageList>(
      request.images, input.c, request.preprocessing.exif_orientation ? Orientation::exif : Orientation::as_stored);
  for (const std::string& note : images->notes()) say("note: " + note);
  RunData& data = run.data;
  data.train_set = data.validation_set = data.test_set = images;
  data.evaluation_transform = data.train_transform = evaluation_transform(input, run.preprocessing);
  check_transform(data.evaluation_transform);
  data.mean = run.preprocessing.mean;
  data.std = run.preprocessing.std;
  deal(readable(*images, static_cast<size_t>(request.limit), data.evaluation_transform), "picture", request.seed, data);
  for (const std::string& note : check_pictures(data)) say("note: " + note);
}

TensorData ready_inputs(const QuantizeRequest& request, const Node& input) {
  if (request.inputs.empty()) return read_input_tensor(request.tensors, input.name);
  const Shape& shape = input.shape;
  const auto elements = static_cast<size_t>(shape.elements());
  if (request.inputs.size() % elements != 0)
    throw data_error(fmt::format("inputs: {} values are no whole number of inputs of {} x {} x {}",
                                 request.inputs.size(), shape.c, shape.h, shape.w));
  return float_tensor({static_cast<int64_t>(request.inputs.size() / elements), shape.c, shape.h, shape.w},
                      request.inputs.data());
}

/// Takes the ready inputs of the request in place of images, and returns them.
std::shared_ptr<InputTensors> open_tensors(const QuantizeRequest& request, Run& run) {
  const Node& input = run.graph.nodes.front();
  auto tensors = std::make_shared<InputTensors>(ready_inputs(request, input),
                                                request.inputs.empty() ? request.tensors : "inputs", input.shape);
  run.preprocessing = pixels_are_codes(QParams(), input.shape.c);  // until the input has its codes
  RunData& data = run.data;
  data.train_set = data.validation_set = data.test_set = tensors;
  data.evaluation_transform = data.train_transform = evaluation_transform(input.shape, run.preprocessing);
  std::vector<size_t> all(tensors->size());
  std::iota(all.begin(), all.end(), size_t{0});
  deal(evenly_spaced(all, std::min(all.size(), static_cast<size_t>(request.limit))), "input", request.seed, data);
  return tensors;
}

/// Calls take(x) for each batch of the images.
template <class Take>
void for_batches(const Run& run, const std::vector<size_t>& indices, const Take& take) {
  Loader loader(*run.data.train_set, indices, run.data.evaluation_transform,
                {.batch_size = run.recipe.calibrate.batch_size, .workers = run.data.workers});
  for (Batch batch; loader.next(batch); throw_if_interrupted()) take(network_input(batch, run.data, run.device));
}

std::vector<at::Tensor> batches(const Run& run, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> result;
  for_batches(run, indices, [&](const at::Tensor& x) { result.push_back(x); });
  return result;
}

/// Throws for a set of black or equal images, whose ranges would be those of nothing. one: as for deal(); a ready input
/// may be a vector, which is one value a channel.
void require_differences(const std::vector<at::Tensor>& images, std::string_view one) {
  const at::Tensor first = images.front()[0];
  bool plain = true, equal = true;
  for (const at::Tensor& batch : images) {
    const at::Tensor flat = batch.flatten(2);
    plain = plain && flat.amin(2).eq(flat.amax(2)).all().item<bool>();
    equal = equal && batch.eq(first).all().item<bool>();
  }
  const bool several = images.size() > 1 || images.front().size(0) > 1;
  if ((plain && one == "picture") || (equal && several))
    throw data_error(fmt::format("{}all {}s are the same: there is nothing to calibrate on",
                                 one == "picture" ? "every picture is of one colour, or " : "", one));
}

/// The methods that are tried without --method: all of them, and percentiles that clip more.
std::vector<RangeMethod> range_methods() {
  return {{CalibrationMethod::mse},
          {CalibrationMethod::minmax},
          {CalibrationMethod::percentile, 99.99},
          {CalibrationMethod::percentile, 99.9},
          {CalibrationMethod::entropy}};
}

/// A way to quantize: the repairs of a recipe, by name.
struct Way {
  std::string name;
  CalibrateRecipe calibrate;
};

std::vector<Way> ways(const QuantizeRequest& request, const Graph& graph) {
  std::vector<Way> all = {{"none", request.calibrate}};
  if (request.repair == Repair::none) return all;
  Way way{"bias correction", request.calibrate};
  way.calibrate.bias_correction = true;
  all.push_back(way);
  way.name = "equalization and bias correction";
  way.calibrate.equalize = true;
  all.push_back(way);
  if (request.repair == Repair::fast) return all;
  way.name = "bias correction and learned rounding";
  way.calibrate.equalize = false;
  way.calibrate.rounding = WeightRounding::adaround;
  all.push_back(way);
  if (graph.outputs.size() > 1) return all;
  way.name += ", then distillation";
  way.calibrate.distill_steps = 1000;
  all.push_back(way);
  return all;
}

/// One way, calibrated, with its ranges chosen.
struct Made {
  QuantizedModel model;
  ChosenRanges ranges;
  double lost = 0;  ///< on the images held back for choices
};

Made make(Run run, const Weights& floats, const QuantizeRequest& request, const Way& way,
          const std::vector<at::Tensor>& held, const FloatOutputs& wanted) {
  Weights weights = floats;  // repairs change them
  for (auto& [name, tensor] : weights) tensor = tensor.detach().clone();
  run.recipe.calibrate = way.calibrate;
  run.recipe.calibrate.images = request.limit;
  if (request.method) run.recipe.calibrate.method = *request.method;
  Made made{make_quantized(run, weights), {}, 0};
  const OutputErrors errors(made.model, held, wanted);
  const std::vector<RangeMethod> methods =
      request.method ? std::vector<RangeMethod>{{*request.method, way.calibrate.percentile}} : range_methods();
  const int trials =
      request.method ? 1 : static_cast<int>(methods.size() + 3 * run.data.calibration.size() / kHeldBack);
  calibrate(made.model, run, [&] {
    Progress progress("choose ranges", trials, "trials");
    made.ranges = choose_ranges(made.model, errors, methods, trials, [&](int trial) {
      progress.update(trial);
      throw_if_interrupted();
    });
  });
  made.lost = errors.lost();
  return made;
}

/// Gives lookups a scale for each channel where that loses less, and then changes `best` and run.graph. Which lookups
/// get them is chosen with the ranges of one method and few calibration images.
void try_channel_scales(Run& run, QuantizedModel& original, const QuantizeRequest& request, const Way& way,
                        const std::vector<at::Tensor>& held, const FloatOutputs& wanted, Made& best,
                        Quantized::ChannelScales& result) {
  ChannelScales channels(original);
  if (!channels.any()) return;
  for_batches(run, run.data.calibration, [&](const at::Tensor& x) { channels.see(x); });
  const RangeMethod& ranges = best.ranges.trials[best.ranges.chosen].ranges;
  QuantizeRequest one_method = request;
  one_method.method = ranges.method;
  Way its_way = way;
  its_way.calibrate.percentile = ranges.percentile;
  Run quick = run;
  quick.data.calibration = evenly_spaced(run.data.calibration, std::min(kHeldBack, run.data.calibration.size()));
  const auto chosen = channels.best(run.graph, original.weights(), [&](const Graph& graph, const Weights& weights) {
    quick.graph = graph;
    return make(quick, weights, one_method, its_way, held, wanted).lost;
  });
  if (!chosen) return;
  const Graph before = std::exchange(run.graph, chosen->graph);
  Made made = make(run, chosen->weights, request, way, held, wanted);
  if (made.lost >= best.lost) return void(run.graph = before);
  result = {chosen->lookups, best.lost, made.lost};
  best = std::move(made);
}

Comparison prove(const Run& run, const QuantizedModel& model, const Int8Graph& graph) {
  std::vector<OwnedProgram> programs;
  programs.push_back({"qat_graph", qat_graph_program(model, run.preprocessing)});
  for (const Engine* engine : exact_engines()) {
    if (engine->on_gpu() && run.device.is_cpu()) continue;
    programs.push_back({std::string(engine->name()), compile_engine(run, std::string(engine->name()), graph)});
  }
  EvaluationSet set = run.data.test_images(kProofImages);
  Comparison comparison = compare(graph, named(programs), set, static_cast<int>(kProofImages));
  comparison.constants = derived_constants(run, model, graph);
  return comparison;
}

}  // namespace

Graph open_network(QuantizeRequest& request) {
  if (is_onnx_file(request.network)) {
    if (request.classes > 0)
      throw usage_error(
          fmt::format("{}: --classes is of a network of the zoo, an ONNX file has its own outputs: leave it out, or "
                      "choose among them by --outputs",
                      request.network));
    const auto import = [&] { return import_onnx(request.network, request.outputs, request.image_size); };
    ImportedNetwork imported;
    try {
      imported = import();
    } catch (const OnnxEndsTooLate& late) {
      request.outputs = late.end_at;
      imported = import();
      say(fmt::format("note: {}: ends at {}; what stands behind ({}) stays with your program", request.network,
                      printable(fmt::format("{}", fmt::join(late.end_at, ", "))), fmt::join(late.left_out, ", ")));
    }
    for (const std::string& note : imported.notes) say(fmt::format("{}: {}", request.network, printable(note)));
    return std::move(imported.graph);
  }
  if (request.weights.empty())
    throw usage_error(
        fmt::format("{}: a network of the zoo needs weights (--weights FILE); a network of your own is an "
                    ".onnx file",
                    request.network));
  if (!request.outputs.empty())
    throw usage_error(fmt::format(
        "{}: --outputs is of an ONNX file, a network of the zoo gives its classes: leave it out", request.network));
  const int size = request.image_size > 0 ? request.image_size : 224;
  ModelSpec spec{
      .name = request.network, .input = {3, size, size}, .classes = request.classes > 0 ? request.classes : 1000};
  Graph graph = build_model(spec);
  const bool normalized =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == Op::batch_norm; });
  if (!normalized || !has_folded_batch_norm(read_weights_file(request.weights))) return graph;
  say(fmt::format("note: {}: BatchNorm is folded into the convolutions, and the network has none", request.weights));
  spec.folded = true;
  return build_model(spec);
}

Quantized quantize(const QuantizeRequest& request, const Graph& graph, at::Device device) {
  Run run = open(request, graph, device);
  std::shared_ptr<InputTensors> tensors;  // null: images
  if (request.images.empty())
    tensors = open_tensors(request, run);
  else
    open_images(request, run);
  const Weights floats = starting_weights(run);
  require_usable(request, run.graph, floats);
  run.recipe.evaluate.batch_size = kProofImages;
  const std::vector<at::Tensor> held = batches(run, run.data.validation);
  require_differences(held, tensors ? "input" : "picture");
  QuantizedModel original = make_quantized(run, floats);
  const FloatOutputs wanted = float_outputs(original, held);

  Quantized result;
  result.calibrated_on = run.data.calibration.size();
  result.chosen_on = run.data.validation.size();
  result.measured_on = run.data.test.size();
  for (const auto& [name, tensor] : floats) result.float_bytes += tensor.nbytes();
  std::optional<Made> best;
  const std::vector<Way> tried = ways(request, run.graph);
  for (const Way& way : tried) {
    if (tried.size() > 1) result.repairs.push_back({.name = way.name});
    try {
      Made made = make(run, floats, request, way, held, wanted);
      if (tried.size() > 1) result.repairs.back().lost = made.lost;
      if (best && made.lost >= best->lost) continue;
      best.emplace(std::move(made));
      result.repaired = result.repairs.empty() ? 0 : result.repairs.size() - 1;
    } catch (const Error& error) {
      if (!best || error.code() != ExitCode::usage) throw;
      result.repairs.back().refused = error.what();  // this network does not allow it; the others go on
    }
  }
  try_channel_scales(run, original, request, tried[result.repaired], held, wanted, *best, result.channel_scales);
  result.ranges = best->ranges;
  const std::vector<at::Tensor> unseen = batches(run, run.data.test);
  result.outputs = OutputErrors(best->model, unseen, float_outputs(original, unseen)).measure();
  const int alone = std::min(request.alone, static_cast<int>(run.graph.nodes.size()));
  Progress progress("layers alone", alone, "layers");
  result.layers = layer_costs(best->model, unseen, alone, [&](int layer) {
    progress.update(layer);
    throw_if_interrupted();
  });
  result.graph = to_int8(run, best->model);
  result.graph.recipe_hash.clear();  // there is no recipe
  if (tensors) {
    const Int8Node& input = result.graph.nodes.front();
    tensors->set_codes(input.out);
    run.preprocessing = result.graph.preprocessing = pixels_are_codes(input.out, input.shape.c);
  }
  // As an ONNX file names them.
  for (size_t o = 0; o < result.outputs.size(); ++o)
    result.outputs[o].name = result.graph.nodes[result.graph.outputs[o]].name;
  result.comparison = prove(run, best->model, result.graph);
  return result;
}

}  // namespace octet
