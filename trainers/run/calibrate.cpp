// SPDX-License-Identifier: Apache-2.0
// Calibration: ranges of activations from the calibration images, and the repairs of weights and biases that need no
// training.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/quant/equalize.h"
#include "src/quant/plan.h"
#include "src/recipe/recipe.h"
#include "src/train/model/device.h"
#include "src/train/repair/correct_biases.h"
#include "src/train/repair/learned_codes.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/train.h"
#include "trainers/run/auto_ranges.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr int kWide = 8;  // codes that reach 8 times as far as the values waste three bits

/// Returns the smallest number of bits of any activation.
int fewest_bits(const Prepared& prepared) {
  int fewest = 8;
  for (const int bits : prepared.bits.activation_bits) {
    if (bits != 0) fewest = std::min(fewest, bits);
  }
  return fewest;
}

/// Whether every rank takes all batches, or batch b belongs to rank b modulo the number of ranks.
enum class Split { none, by_rank };

/// Calls take(x) for each batch of `images` calibration images, evenly spaced over the list.
template <class Take>
void for_batches(const Run& run, const char* what, size_t images, Split split, const Take& take) {
  const RunData& data = run.data;
  const size_t count = std::min(images, data.calibration.size()), size = run.recipe.calibrate.batch_size;
  const bool share = split == Split::by_rank && run.ranks;
  const size_t ranks = share ? run.ranks->size() : 1, mine = share ? run.ranks->rank() : 0;
  const std::vector<size_t> all = evenly_spaced(data.calibration, count);
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i)
    if (i / size % ranks == mine) indices.push_back(all[i]);
  Progress progress(what, static_cast<long>(count));
  size_t seen = 0;
  for_inputs(data, *data.train_set, indices, run.recipe.calibrate.batch_size, run.device, [&](const at::Tensor& x) {
    take(x);
    seen = std::min(count, seen + static_cast<size_t>(x.size(0)) * ranks);  // other ranks are about as far
    progress.update(static_cast<long>(seen));
    throw_if_interrupted();
  });
}

void equalize_model(const QuantizedModel& model, const Run& run) {
  const Graph& graph = model.prepared().graph;
  FloatParams params = float_params(model.weights());
  equalize(graph, params);
  set_float_params(model.weights(), params);
  MomentsObserver moments(graph, model.weights());
  for_batches(run, "equalize", run.data.calibration.size(), Split::none, [&](const at::Tensor& x) { moments.see(x); });
  absorb_biases(graph, moments.moments(), params);
  set_float_params(model.weights(), params);
}

void round_model(QuantizedModel& model, const Run& run, const at::Tensor& images) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const bool blocks = recipe.rounding == WeightRounding::block;
  const std::string units = blocks ? "blocks" : "layers";
  const OwnStream stream(run.device);
  const long count = static_cast<long>(rounding_units(model.prepared().graph, blocks).size());
  Progress progress("round", count * recipe.rounding_steps, "steps");
  double nearest = 0, rounded = 0;
  int64_t weights = 0, moved = 0;
  long seen = 0, step = 0;  // units done; steps of all units
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
  reconstruct(model, images, blocks, plan, done, [&] {
    progress.update(step++, fmt::format("{} of {} {}", seen, count, units));
    throw_if_interrupted();
  });
  say(fmt::format("{}: {:.1f} % of the codes moved; squared error of the {}' outputs: {:.1f} % of nearest's",
                  name_in(kWeightRoundings, recipe.rounding),
                  100.0 * static_cast<double>(moved) / static_cast<double>(weights), units,
                  nearest > 0 ? 100 * rounded / nearest : 100));
}

bool rounds(const CalibrateRecipe& recipe) { return recipe.rounding != WeightRounding::nearest; }

/// Rounds weights first: bias correction then also corrects the shift of a channel that rounding leaves. floats: the
/// weights before.
void repair_layers(QuantizedModel& model, const Run& run, const Weights& floats) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  if (recipe.bias_correction) require_biases(model.prepared().graph);
  std::vector<at::Tensor> parts;
  for_batches(run, "repair", static_cast<size_t>(recipe.repair_images), Split::none,
              [&](const at::Tensor& x) { parts.push_back(x); });
  const at::Tensor images = at::cat(parts);
  if (rounds(recipe)) round_model(model, run, images);
  const QatRecipe& qat = run.recipe.qat;
  const bool live = qat.epochs > 0 && qat.freeze_batch_norm != 0;  // BatchNorm's statistics, in training that follows
  if (recipe.bias_correction)
    correct_biases(model, floats, images, live ? BatchNormTakes::running_mean : BatchNormTakes::bias);
}

/// Gives batches of the calibration images without end, augmented anew in each epoch.
class AugmentedImages {
 public:
  explicit AugmentedImages(const Run& run) : run_(run) {
    const size_t images = run.data.calibration.size();
    options_ = {.batch_size = static_cast<int>(std::min<size_t>(run.recipe.calibrate.batch_size, images)),
                .train = true,
                .seed = run.recipe.seed,
                .workers = run.data.workers};
  }

  at::Tensor next() {
    const RunData& data = run_.data;
    while (!loader_ || !loader_->next(batch_)) {
      loader_.emplace(*data.train_set, data.calibration, data.train_transform, options_);
      ++options_.epoch;
    }
    return network_input(batch_, data, run_.device);
  }

 private:
  const Run& run_;
  LoaderOptions options_;
  std::optional<Loader> loader_;
  Batch batch_;
};

/// Distills the float network into the quantized one with recipe.calibrate.distill_steps
/// (src/train/repair/learned_codes.h), without labels. floats: the weights before they were rounded.
void distill_model(QuantizedModel& model, const Run& run, const Weights& floats) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const DistillPlan plan{.steps = recipe.distill_steps,
                         .rate = recipe.distill_learning_rate,
                         .temperature = recipe.distill_temperature,
                         .tf32 = run.recipe.cuda.tf32};
  const OwnStream stream(run.device);
  AugmentedImages images(run);
  Progress progress("distill", plan.steps, "steps");
  long step = 0;
  const auto next = [&] {
    progress.update(step++);
    throw_if_interrupted();
    return images.next();
  };
  const Distilled result = distill(model, floats, next, plan);
  progress.update(step);
  say(fmt::format(
      "distill: {:.1f} % of the codes moved; loss of the first tenth of the steps {:.4f}, of the last {:.4f}",
      100.0 * static_cast<double>(result.moved) / static_cast<double>(result.weights), result.first, result.last));
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

bool repairs(const CalibrateRecipe& recipe) {
  return recipe.bias_correction || rounds(recipe) || recipe.distill_steps > 0;
}

/// Repairs single layers first, then what their errors do together.
void repair(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  if (!repairs(recipe)) return;
  const Weights floats = copies_of(model.weights());
  if (recipe.bias_correction || rounds(recipe)) repair_layers(model, run, floats);
  if (recipe.distill_steps > 0) distill_model(model, run, floats);
  require_finite_repairs(model.weights(), recipe);
}

/// Prints which layers are sparse: "2:4: 19 of 21 layers; dense: conv1 (reads the image), ..."
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

/// Shows the calibration images to the observers. images: those that are read already for joint_ranges(), whose values
/// are kept; several processes share the images, and each needs the values of all of these.
void observe(QuantizedModel& model, const Run& run, SeenImages& images) {
  const std::vector<size_t>& all = run.data.calibration;
  const QuantizedModel::Mode observing{.observe = true, .quantize = false};
  if (run.ranks || images.x.empty())
    return for_batches(run, "calibrate", all.size(), Split::by_rank,
                       [&](const at::Tensor& x) { model.forward(x, observing); });
  Progress progress("calibrate", static_cast<long>(all.size()));
  long seen = 0;
  const auto see = [&](const at::Tensor& x, const QuantizedModel::Look& look) {
    model.forward(x, observing, look);
    progress.update(seen += x.size(0));
    throw_if_interrupted();
  };
  for (const at::Tensor& x : images.x)
    see(x, [&](int node, const at::Tensor& y) { images.see(model.prepared(), node, y); });
  std::vector<size_t> read = indices_for_joint_ranges(run), others;
  std::sort(read.begin(), read.end());
  for (const size_t index : all)
    if (!std::binary_search(read.begin(), read.end(), index)) others.push_back(index);
  for_inputs(run.data, *run.data.train_set, others, run.recipe.calibrate.batch_size, run.device,
             [&](const at::Tensor& x) { see(x, nullptr); });
}

void find_ranges(QuantizedModel& model, const Run& run, CalibrationPass& pass) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  if (const int bits = fewest_bits(model.prepared()); recipe.method == CalibrationMethod::entropy && bits < 8) {
    say(
        fmt::format("note: calibrate.method entropy was made for 8 bits; for activations of {} it clips too little, "
                    "and mse rounds with less error",
                    bits));
  }
  if (pass.seen) {
    model.see_as(*pass.seen);
  } else {
    observe(model, run, pass.images);
    pass.seen = model;
  }
  model.calibrate(recipe.method.value_or(CalibrationMethod::minmax), recipe.percentile,
                  [&](std::vector<Observer>& histograms) {
                    if (run.ranks) sum_histograms(*run.ranks, histograms);
                  });
  if (!recipe.method) return;  // then ranges are chosen by what they do at the outputs
  const std::vector<QuantizedModel::WideEdge> wide = model.wide_edges(kWide);
  if (wide.empty()) return;
  say(
      fmt::format("note: {}: codes that reach {} times as far as 99.9 % of the values, or more: a few images take "
                  "bits from all others (furthest '{}': codes to {:.4g}, values within {:.4g}); calibrate.method "
                  "percentile leaves them out, octet calibrate --all compares",
                  counted(static_cast<long>(wide.size()), "edge"), kWide, wide.front().node, wide.front().reach.codes,
                  wide.front().reach.values));
}

/// Calls find_ranges() and explains its error when an observer refuses a value that is not finite.
void find_finite_ranges(QuantizedModel& model, const Run& run, CalibrationPass& pass) try {
  find_ranges(model, run, pass);
} catch (const OthersLost&) {
  throw;
} catch (const Error& error) {
  if (error.code() != ExitCode::promise) throw;
  const Recipe& recipe = run.recipe;
  const std::string cure = recipe.train.epochs > 0
                               ? fmt::format("lower train.learning_rate, now {:g}", run.float_rate)
                               : fmt::format("the weights of {} are not fit for this network or these images",
                                             recipe.model.weights.empty() ? recipe.model.onnx : recipe.model.weights);
  throw promise_error(fmt::format("phase calibrate: {}: the float network overflows; {}", error.what(), cure));
}

/// Calls work() in full precision, without gradients, and explains what ends it.
void in_calibration(const CalibrateRecipe& recipe, const std::function<void()>& work) try {
  const FullPrecision full;  // ranges are those of the float32 network on every device
  const at::NoGradGuard no_grad;
  work();
} catch (const Error& error) {
  if (error.code() == ExitCode::interrupted) throw Error(error.code(), "interrupted in calibration, which begins anew");
  throw;
} catch (const c10::OutOfMemoryError&) {
  throw promise_error(fmt::format(
      "calibrate: the GPU is out of memory with calibrate.batch_size {}{}; take a smaller one", recipe.batch_size,
      repairs(recipe) ? fmt::format(" and repair_images {}", recipe.repair_images) : ""));
}

}  // namespace

CalibratedRanges calibrate(QuantizedModel& model, const Run& run, const CalibrateWith& with) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  CalibratedRanges ranges;
  ranges.taken = ranges.alone = {recipe.method.value_or(CalibrationMethod::minmax), recipe.percentile};
  in_calibration(recipe, [&] {
    say_sparse_layers(model.prepared());
    std::optional<HeldBack> own;
    const bool chooses = !recipe.method && !with.ranges_set;
    const bool tells = recipe.bias_correction && run.recipe.qat.epochs > 0 && !with.ranges_set;
    if ((chooses || tells) && with.held == nullptr) own.emplace(model, run);
    if (recipe.equalize) equalize_model(model, run);
    CalibrationPass its;
    if (!recipe.method && !with.pass) its.images.x = with.images ? *with.images : images_for_joint_ranges(run);
    CalibrationPass& pass = with.pass ? *with.pass : its;
    find_finite_ranges(model, run, pass);
    const HeldBack* held = own ? &*own : with.held;
    if (chooses) say((ranges = held->choose_ranges(model, pass.images)).chosen);
    if (with.ranges_set) with.ranges_set(pass.images);
    repair(model, run);
    if (repairs(recipe)) ranges.lost.reset();    // that was before them
    if (tells) ranges.lost = held->lost(model);  // of the float network as it was before them
  });
  if (run.ranks) take_from_first(*run.ranks, model.weights(), &model);
  return ranges;
}

void repair_calibrated(QuantizedModel& model, const Run& run) {
  in_calibration(run.recipe.calibrate, [&] { repair(model, run); });
}

}  // namespace octet
