// Ranges of activations from the calibration images, and the repairs of a network that is not trained any more.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/core.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "src/model/device.h"
#include "src/qat/channel_moments.h"
#include "src/qat/correct_biases.h"
#include "src/qat/reconstruct/piece.h"
#include "src/qat/reconstruct/reconstruct.h"
#include "src/quant/equalize.h"
#include "src/quant/sparse_layers.h"
#include "src/recipe/choices.h"
#include "trainers/gpu.h"
#include "trainers/loop/sum_histograms.h"
#include "trainers/loop/take_from_first.h"
#include "trainers/run/distill_model.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr int kWide = 8;  // three bits

/// Of activations.
int fewest_bits(const Prepared& prepared) {
  int fewest = 8;
  for (const int bits : prepared.bits.activation_bits) {
    if (bits != 0) fewest = std::min(fewest, bits);
  }
  return fewest;
}

/// Who takes which batches: all take all, or batch b is that of rank b mod their number.
enum class Batches { all, share };

/// Calls take(x) for the batches of so many calibration images, from all over the list: a folder's are sorted by class.
template <class Take>
void for_batches(const Run& run, const char* what, size_t images, Batches batches, const Take& take) {
  const RunData& data = run.data;
  const size_t count = std::min(images, data.calibration.size()), size = run.recipe.calibrate.batch_size;
  const bool share = batches == Batches::share && run.ranks;
  const size_t ranks = share ? run.ranks->size() : 1, mine = share ? run.ranks->rank() : 0;
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i)
    if (i / size % ranks == mine) indices.push_back(data.calibration[i * data.calibration.size() / count]);
  Loader loader(*data.train_set, indices, data.evaluation_transform,
                {.batch_size = run.recipe.calibrate.batch_size, .workers = data.workers});
  Progress progress(what, static_cast<long>(count));
  Batch batch;
  for (size_t seen = 0; loader.next(batch);) {
    take(images_to_tensor({batch.images.data(), batch.size, run.graph.nodes.front().shape}, data.mean, data.std,
                          run.device));
    seen = std::min(count, seen + batch.size * ranks);  // as far as the others, by and large
    progress.update(static_cast<long>(seen));
    throw_if_interrupted();
  }
}

void equalize_model(const QuantizedModel& model, const Run& run) {
  const Graph& graph = model.prepared().graph;
  FloatParams params = float_params(model.weights());
  equalize(graph, params);
  set_float_params(model.weights(), params);
  MomentsObserver moments(graph, model.weights());
  for_batches(run, "equalize", run.data.calibration.size(), Batches::all, [&](const at::Tensor& x) { moments.see(x); });
  absorb_biases(graph, moments.moments(), params);
  set_float_params(model.weights(), params);
}

WeightRounding rounding(const CalibrateRecipe& recipe) {
  return value_named(kWeightRoundings, recipe.rounding, "calibrate.rounding");
}

void round_model(QuantizedModel& model, const Run& run, const at::Tensor& pictures) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const bool blocks = rounding(recipe) == WeightRounding::block;
  const std::string units = blocks ? "blocks" : "layers";
  const OwnStream stream(run.device);
  const long count = static_cast<long>(rounding_units(model.prepared().graph, blocks).size());
  Progress progress("round", count * recipe.rounding_steps, "steps");
  double nearest = 0, rounded = 0;
  int64_t weights = 0, moved = 0;
  long seen = 0, step = 0;  // units that are done, steps in all
  const StepPlan plan{.steps = recipe.rounding_steps,
                      .batch_size = recipe.batch_size,
                      .seed = run.recipe.seed,
                      .rate = recipe.rounding_learning_rate,
                      .drop = recipe.rounding_drop,
                      .tf32 = run.recipe.cuda.tf32};
  const auto done = [&](const Reconstructed& unit) {
    nearest += unit.nearest;
    rounded += unit.rounded;
    weights += unit.weights;
    moved += unit.moved;
    step = ++seen * recipe.rounding_steps;
    progress.update(step, fmt::format("{} of {} {}, {}", seen, count, units, unit.name));
  };
  reconstruct(model, pictures, blocks, plan, done, [&] {
    progress.update(step++, fmt::format("{} of {} {}", seen, count, units));
    throw_if_interrupted();
  });
  say(fmt::format("{}: {:.1f} % of the codes moved; squared error of the {}' outputs: {:.1f} % of nearest's",
                  recipe.rounding, 100.0 * static_cast<double>(moved) / static_cast<double>(weights), units,
                  nearest > 0 ? 100 * rounded / nearest : 100));
}

bool rounds(const CalibrateRecipe& recipe) { return rounding(recipe) != WeightRounding::nearest; }

/// Rounding first: what it leaves of a channel's mean goes into the bias.
void repair_layers(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  MomentsObserver moments(model.prepared().graph, model.weights());  // while the weights are float
  std::vector<at::Tensor> parts;
  for_batches(run, "repair", static_cast<size_t>(recipe.repair_images), Batches::all, [&](const at::Tensor& x) {
    if (recipe.bias_correction) moments.see(x);
    parts.push_back(x);
  });
  const at::Tensor pictures = at::cat(parts);
  if (rounds(recipe)) round_model(model, run, pictures);
  if (recipe.bias_correction) correct_biases(model, moments.moments(), pictures);
}

/// What the layers' errors do together comes last.
void repair(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  Weights floats = model.weights();
  for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
  if (recipe.bias_correction || rounds(recipe)) repair_layers(model, run);
  if (recipe.distill_steps > 0) distill_model(model, run, floats);
}

/// "2:4: 19 of 21 layers; dense: conv1 (reads the picture), ..."
void say_sparse_layers(const Prepared& prepared) {
  if (prepared.spec.sparsity == Sparsity::none) return;
  const std::vector<std::string> reasons = dense_reasons(prepared.graph);
  long layers = 0, sparse = 0;
  std::string dense;
  for (size_t n = 0; n < reasons.size(); ++n) {
    const Node& node = prepared.graph.nodes[n];
    layers += has_weight(node.op);
    sparse += prepared.sparse[n];
    if (!reasons[n].empty()) dense += fmt::format("{}{} ({})", dense.empty() ? "" : ", ", node.name, reasons[n]);
  }
  say(fmt::format("2:4: {} of {} layers; dense: {}", sparse, layers, dense));
}

void find_ranges(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  if (const int bits = fewest_bits(model.prepared()); recipe.method == "entropy" && bits < 8) {
    say(
        fmt::format("note: calibrate.method entropy was made for 8 bits; for activations of {} it clips too little, "
                    "and mse rounds with less error",
                    bits));
  }
  for_batches(run, "calibrate", run.data.calibration.size(), Batches::share,
              [&](const at::Tensor& x) { model.forward(x, {.observe = true, .quantize = false}); });
  model.calibrate(value_named(kCalibrationMethods, recipe.method, "calibrate.method"), recipe.percentile,
                  [&](std::vector<Observer>& histograms) {
                    if (run.ranks) sum_histograms(*run.ranks, histograms);
                  });
  const std::vector<QuantizedModel::WideEdge> wide = model.wide_edges(kWide);
  if (wide.empty()) return;
  say(
      fmt::format("note: {}: codes that reach {} times as far as 99.9 % of the values, or more: a few pictures take "
                  "bits from all others (furthest '{}': codes to {:.4g}, values within {:.4g}); calibrate.method "
                  "percentile leaves them out, octet calibrate --all compares",
                  counted(static_cast<long>(wide.size()), "edge"), kWide, wide.front().node, wide.front().reach.codes,
                  wide.front().reach.values));
}

/// find_ranges(), whose observers refuse what is not finite.
void find_finite_ranges(QuantizedModel& model, const Run& run) try {
  find_ranges(model, run);
} catch (const OthersLost&) {
  throw;
} catch (const Error& error) {
  if (error.code() != ExitCode::promise) throw;
  const Recipe& recipe = run.recipe;
  const std::string cure = recipe.train.epochs > 0
                               ? fmt::format("lower train.learning_rate, now {:g}", recipe.train.learning_rate)
                               : fmt::format("the weights of {} are not fit for this network or these pictures",
                                             recipe.model.weights.empty() ? recipe.model.onnx : recipe.model.weights);
  throw promise_error(fmt::format("phase calibrate: {}: the float network overflows; {}", error.what(), cure));
}

void require_finite_repairs(const Weights& weights, const CalibrateRecipe& recipe) {
  for (const auto& [name, tensor] : weights) {
    if (tensor.detach().isfinite().all().item<bool>()) continue;
    const bool distills = recipe.distill_steps > 0;
    throw promise_error(
        fmt::format("phase calibrate: the repairs diverged: weights '{}' are not finite; lower "
                    "calibrate.{}, now {:g}",
                    name, distills ? "distill_learning_rate" : "rounding_learning_rate",
                    distills ? recipe.distill_learning_rate : recipe.rounding_learning_rate));
  }
}

}  // namespace

void calibrate(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const bool repairs = recipe.bias_correction || rounds(recipe) || recipe.distill_steps > 0;
  const FullPrecision full;  // ranges are those of the float network, on every device
  const at::NoGradGuard no_grad;
  try {
    say_sparse_layers(model.prepared());
    if (recipe.equalize) equalize_model(model, run);
    find_finite_ranges(model, run);
    if (repairs) repair(model, run);
    if (repairs) require_finite_repairs(model.weights(), recipe);
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted)
      throw Error(error.code(), "interrupted in calibration, which begins anew");
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw promise_error(
        fmt::format("calibrate: the GPU is out of memory with calibrate.batch_size {}{}; take a smaller one",
                    recipe.batch_size, repairs ? fmt::format(" and repair_images {}", recipe.repair_images) : ""));
  }
  if (run.ranks) take_from_first(*run.ranks, model.weights(), &model);
}

}  // namespace octet
