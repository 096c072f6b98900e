// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/quantize.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/net/import/pytorch_file.h"
#include "src/net/zoo.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "src/train/proof/deployed_network.h"
#include "src/train/repair/channel_scales.h"
#include "src/train/repair/correct_biases.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/run/auto_ranges.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

constexpr const char *kNoRepairs = "none", *kDepthwise = "channels of depthwise layers",
                     *kBiasCorrection = "bias correction";
constexpr size_t kProofImages = 2;  // engines promise equal codes for every image; a few show it

bool is_onnx_file(const std::string& network) { return network.ends_with(".onnx"); }

void require_finite(const QuantizeRequest& request, const Weights& weights) {
  for (const auto& [name, tensor] : weights)
    if (!tensor.detach().isfinite().all().item<bool>())
      throw data_error(fmt::format("{}: '{}' holds NaN or infinity: the float network is broken",
                                   request.weights.empty() ? request.network : request.weights, name));
}

/// Throws for a network that has nothing to quantize, or weights that are not finite.
void require_usable(const QuantizeRequest& request, const Graph& graph, const Weights& weights) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return has_weight(node.op); }))
    throw usage_error(fmt::format("{}: no convolution and no linear layer: nothing gains by int8", request.network));
  require_finite(request, weights);
}

Run open(const QuantizeRequest& request, FloatNetwork network, at::Device device) {
  Run run{};
  run.recipe.seed = request.seed;
  run.recipe.threads = request.threads;
  run.recipe.quant = request.quant;
  run.recipe.calibrate = request.calibrate;
  run.recipe.calibrate.images = request.limit;
  run.recipe.train.epochs = run.recipe.qat.epochs = 0;
  run.recipe.model.name = is_onnx_file(request.network) ? "onnx" : request.network;
  run.recipe.model.onnx = is_onnx_file(request.network) ? request.network : "";
  run.recipe.model.outputs = run.onnx_outputs = request.outputs;
  run.recipe.model.weights = request.weights;
  run.recipe.data.image_size = request.image_size;
  run.device = device;
  set_switches(device, run.recipe.cuda);
  set_threads(request.threads > 0 ? request.threads : usable_cores());
  run.graph = std::move(network.graph);
  run.onnx_weights = std::move(network.onnx_weights);
  run.data.workers = device.is_cpu() ? 1 : usable_cores();
  return run;
}

/// Returns the weights of the network, those of an ONNX file where they lie, for large networks need the memory:
/// nothing may write to them.
Weights float_weights(const Run& run) {
  if (!run.onnx_weights || !run.recipe.model.weights.empty()) return starting_weights(run);
  Weights weights;
  for (const auto& [name, tensor] : run.onnx_weights->tensors)
    weights.emplace(name, at::from_blob(
                              const_cast<std::byte*>(tensor.bytes.data()), tensor.shape,
                              [file = run.onnx_weights](void*) {}, at::kFloat));
  return to_device(weights, run.device);
}

/// A way to quantize: the repairs of a recipe, by name. Bias correction by itself is no way: correct() adds it.
struct Way {
  std::string name;
  CalibrateRecipe calibrate;
  const Weights& floats;  ///< it begins with

  bool repairs() const { return name != kNoRepairs && name != kDepthwise; }  ///< calibrate() changes weights or biases
  bool repairs_later() const { return repairs() && !calibrate.equalize; }    ///< only after the ranges are chosen
};

/// depthwise: the weights with equalized channels; empty if the network has none to equalize.
std::vector<Way> ways(const QuantizeRequest& request, const Run& run, const Weights& floats, const Weights& depthwise) {
  Way way{kNoRepairs, request.calibrate, floats};
  way.calibrate.batch_size = calibration_batch(run);
  std::vector<Way> all = {way};
  if (request.repair == Repair::none) return all;
  if (!depthwise.empty()) all.push_back({kDepthwise, way.calibrate, depthwise});
  if (request.repair < Repair::fast) return all;
  way.calibrate.bias_correction = true;
  way.name = "equalization and bias correction";
  way.calibrate.equalize = true;
  all.push_back(way);
  if (request.repair == Repair::fast) return all;
  way.name = "bias correction and learned rounding";
  way.calibrate.equalize = false;
  way.calibrate.batch_size = request.calibrate.batch_size;  // of the steps that learn
  way.calibrate.rounding = WeightRounding::adaround;
  all.push_back(way);
  if (run.graph.outputs.size() > 1) return all;
  way.name += ", then distillation";
  way.calibrate.distill_steps = 1000;
  all.push_back(way);
  return all;
}

/// One way, calibrated, with its ranges chosen.
struct Made {
  QuantizedModel model;
  ChosenRanges ranges;
  double lost = 0;                       ///< on the images held back for choices
  std::optional<QuantizedModel> floats;  ///< before correct(), which changed the biases of `model`
};

/// Returns a run that calibrates as the way says.
Run with_way(Run run, const QuantizeRequest& request, const Way& way) {
  run.recipe.calibrate = way.calibrate;
  run.recipe.calibrate.images = request.limit;
  run.recipe.calibrate.method = request.method;
  return run;
}

Made make(const Run& opened, const Weights& floats, const QuantizeRequest& request, const Way& way,
          const std::vector<at::Tensor>& seen, const std::vector<at::Tensor>& held, const FloatOutputs& wanted) {
  const Weights weights = way.repairs() ? copies_of(floats) : floats;
  const Run run = with_way(opened, request, way);
  Made made{make_quantized(run, weights), {}};
  const OutputErrors errors(made.model, held, wanted);
  const std::vector<RangeMethod> methods =
      request.method ? std::vector<RangeMethod>{{*request.method, way.calibrate.percentile}} : range_methods();
  const auto choose = [&](const SeenImages& images) {
    made.ranges = choose_ranges(made.model, errors, methods, images);
  };
  calibrate(made.model, run, {.images = &seen, .ranges_set = choose});
  made.lost = way.repairs() ? errors.lost() : made.ranges.lost;  // repairs come after the choice
  return made;
}

/// Makes a way that changes the weights of `plain` after their ranges are chosen: it has the same ranges.
Made repaired(const Run& opened, const Made& plain, const QuantizeRequest& request, const Way& way,
              const std::vector<at::Tensor>& held, const FloatOutputs& wanted) {
  const Run run = with_way(opened, request, way);
  Made made{make_quantized(run, copies_of(plain.model.weights())), plain.ranges};
  made.model.load_state(plain.model.state());
  repair_calibrated(made.model, run);
  made.lost = OutputErrors(made.model, held, wanted).lost();
  return made;
}

/// Returns the weights with the channels around depthwise layers equalized, by what they are over calibration images.
Weights depthwise_weights(const Run& run, QuantizedModel& original) {
  constexpr size_t kImages = 64;
  ChannelScales channels(original);
  const std::vector<size_t>& all = run.data.calibration;
  if (channels.any_depthwise())
    for_input_batches(run, evenly_spaced(all, std::min(kImages, all.size())),
                      [&](const at::Tensor& x) { channels.see_depthwise(x); });
  return channels.depthwise_equalized(original.weights());
}

/// Gives lookups a scale for each channel where that loses less, and then changes `best` and run.graph. Which lookups
/// get them is chosen with the ranges of one method and few calibration images.
void try_channel_scales(Run& run, QuantizedModel& original, const QuantizeRequest& request, const Way& way,
                        const std::vector<at::Tensor>& seen, const std::vector<at::Tensor>& held,
                        const FloatOutputs& wanted, Made& best, Quantized::ChannelScales& result) {
  constexpr double kLittle = 0.01;  // lost: not worth the search
  ChannelScales channels(original);
  if (!channels.any() || best.lost < kLittle) return;
  const auto some = [&](size_t images) {
    return evenly_spaced(run.data.calibration, std::min(images, run.data.calibration.size()));
  };
  for_input_batches(run, some(16), [&](const at::Tensor& x) { channels.see(x); });
  const RangeMethod ranges = best.ranges.best_method();
  QuantizeRequest one_method = request;
  one_method.method = ranges.method;
  Way its_way = way;
  its_way.calibrate.percentile = ranges.percentile;
  Run quick = run;
  quick.data.calibration = some(8);
  std::vector<at::Tensor> few;
  for (size_t images = 0, b = 0; images < 8 && b < held.size(); images += held[b++].size(0)) few.push_back(held[b]);
  FloatOutputs wanted_of_few = wanted;
  wanted_of_few.y.resize(few.size());
  const auto chosen = channels.best(run.graph, way.floats, [&](const Graph& graph, const Weights& weights) {
    quick.graph = graph;
    return make(quick, weights, one_method, its_way, seen, few, wanted_of_few).lost;
  });
  if (!chosen) return;
  const Graph before = std::exchange(run.graph, chosen->graph);
  Made made = make(run, chosen->weights, request, way, seen, held, wanted);
  if (made.lost > ChannelScales::kPays * best.lost) return void(run.graph = before);
  result = {chosen->lookups, best.lost, made.lost};
  best = std::move(made);
}

/// Corrects the biases where that loses less, and then changes `best`. Returns what is lost with it.
double correct(const Run& run, const std::vector<at::Tensor>& held, const FloatOutputs& wanted, Made& best) {
  const Weights& floats = best.model.weights();
  Weights weights = floats;
  for (const Node& node : best.model.prepared().graph.nodes)
    if (const std::string name = bias_name(node); has_weight(node.op) && !name.empty())
      weights.at(name) = weights.at(name).detach().clone();
  QuantizedModel corrected = make_quantized(run, weights);
  corrected.load_state(best.model.state());
  std::vector<at::Tensor> batch;
  const size_t images = std::min<size_t>(calibration_batch(run), run.data.calibration.size());
  for_input_batches(run, evenly_spaced(run.data.calibration, images), [&](const at::Tensor& x) { batch.push_back(x); });
  correct_biases(corrected, floats, at::cat(batch));
  const double lost = OutputErrors(corrected, held, wanted).lost();
  if (lost < best.lost) {
    best.floats = std::exchange(best.model, corrected);
    best.lost = lost;
  }
  return lost;
}

/// Takes off what to_int8() says of the recipe, for a network that none made.
void forget_recipe(Int8Graph& graph) {
  graph.recipe_hash.clear();
  graph.own_names = true;
}

/// Compares the QAT graph with the engines of this machine that promise its codes, over the first test images.
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

FloatNetwork open_network(QuantizeRequest& request) {
  if (is_onnx_file(request.network)) {
    if (request.classes > 0)
      throw usage_error(
          fmt::format("{}: --classes is of a network of the zoo, an ONNX file has its own outputs: leave it out, or "
                      "choose among them by --outputs",
                      request.network));
    ImportedNetwork imported =
        import_network(request.network, request.image_size, /*may_end_sooner=*/true, request.outputs);
    return {std::move(imported.graph), std::make_shared<const TensorFile>(std::move(imported.weights)),
            std::move(imported.unlike)};
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
  if (!has_batch_norm(graph) || !has_folded_batch_norm(read_weights_file(request.weights))) return {graph, nullptr};
  say(fmt::format("note: {}: BatchNorm is folded into the convolutions, and the network has none", request.weights));
  spec.folded = true;
  return {build_model(spec), nullptr};
}

std::unique_ptr<Program> unquantized_program(const QuantizeRequest& request, FloatNetwork network, at::Device device) {
  const Run run = open(request, std::move(network), device);
  const Weights weights = float_weights(run);
  if (weights.empty())
    throw usage_error(request.network + ": has no layer with weights, so there is nothing to measure");
  require_finite(request, weights);
  return float_program(run.graph, weights, request.preprocessing);
}

Unlabelled open_unlabelled(const QuantizeRequest& request, FloatNetwork network, at::Device device) {
  Unlabelled opened{open(request, std::move(network), device), nullptr, {}};
  Run& run = opened.run;
  run.recipe.evaluate.batch_size = kProofImages;
  opened.tensors = open_inputs(request, run);
  opened.weights = float_weights(run);
  run.onnx_weights.reset();
  require_usable(request, run.graph, opened.weights);
  return opened;
}

Quantized quantize(const QuantizeRequest& request, FloatNetwork network, at::Device device) {
  auto [run, tensors, floats] = open_unlabelled(request, std::move(network), device);
  const std::vector<at::Tensor> held = input_batches(run, run.data.validation);
  require_differences(held, /*are_images=*/!tensors);
  QuantizedModel original = make_quantized(run, floats);
  const FloatOutputs wanted = float_outputs(original, held);
  std::vector<at::Tensor> seen;
  if (!request.method) seen = images_for_joint_ranges(run);

  Quantized result;
  result.calibrated_on = run.data.calibration.size();
  result.chosen_on = run.data.validation.size();
  result.measured_on = run.data.test.size();
  for (const auto& [name, tensor] : floats) result.float_bytes += tensor.nbytes();
  std::optional<Made> best, plain;  // plain: of `floats` as they are, where a later way begins with it
  const bool repairs = request.repair != Repair::none;
  const Weights depthwise = repairs ? depthwise_weights(run, original) : Weights();
  const std::vector<Way> tried = ways(request, run, floats, depthwise);
  const bool again = std::any_of(tried.begin(), tried.end(), [](const Way& way) { return way.repairs_later(); });
  const Way* taken = nullptr;
  size_t its_trial = 0;
  for (const Way& way : tried) {
    const size_t trial = result.repairs.size();
    if (repairs) result.repairs.push_back({.name = way.name});
    try {
      Made made = way.repairs_later() ? repaired(run, *plain, request, way, held, wanted)
                                      : make(run, way.floats, request, way, seen, held, wanted);
      if (way.name == kNoRepairs && again) plain = made;
      if (repairs) result.repairs.back().lost = made.lost;
      if (repairs && !way.repairs())
        result.repairs.push_back({.name = way.name == kNoRepairs ? kBiasCorrection : way.name + ", " + kBiasCorrection,
                                  .lost = correct(run, held, wanted, made)});
      if (best && made.lost >= best->lost) continue;
      best.emplace(std::move(made));
      taken = &way;
      its_trial = trial;
      result.repaired = trial + (best->floats ? 1 : 0);
    } catch (const Error& error) {
      if (!best || error.code() != ExitCode::usage) throw;
      result.repairs.back().refused = error.what();  // this network does not allow it; the others go on
    }
  }
  try_channel_scales(run, original, request, *taken, seen, held, wanted, *best, result.channel_scales);
  if (repairs && !taken->repairs() && !result.channel_scales.lookups.empty()) {  // whose biases are not corrected yet
    result.repairs[its_trial + 1].lost = correct(run, held, wanted, *best);
    result.repaired = its_trial + (best->floats ? 1 : 0);
  }
  result.ranges = best->ranges;
  const std::vector<at::Tensor> unseen = input_batches(run, run.data.test);
  const bool same_weights = taken->name == kNoRepairs && result.channel_scales.lookups.empty();
  const int alone = std::min(request.alone, static_cast<int>(run.graph.nodes.size()));
  Progress progress("layers alone", alone, "layers");
  NetworkCosts costs = network_costs(best->model, best->floats ? *best->floats : best->model,
                                     same_weights ? nullptr : &original, unseen, alone, [&](int layer) {
                                       progress.update(layer + 1);
                                       throw_if_interrupted();
                                     });
  result.outputs = std::move(costs.outputs);
  result.layers = std::move(costs.layers);
  result.graph = to_int8(run, best->model);
  forget_recipe(result.graph);
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
