// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/qat_start.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/train/model/device.h"
#include "src/train/repair/output_error.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/train.h"
#include "trainers/run/auto_ranges.h"

namespace octet {
namespace {

/// The share of its outputs that a network may lose to ranges that stay: one that loses so much is a point or two worse
/// calibrated only.
constexpr double kMuchLost = 0.02;

/// Returns how many images of a step BatchNorm normalizes together.
int images_of_step(const Run& run) {
  const QatRecipe& qat = run.recipe.qat;
  const bool shared = run.ranks && !qat.sync_batch_norm;
  return std::max(1, qat.batch_size / (shared ? static_cast<int>(run.ranks->size()) : 1));
}

/// Calls `see` with batches of as many calibration images, until it returns false; a first one may have fewer.
template <class See>
void for_steps(const Run& run, const See& see) {
  const int images = images_of_step(run);
  Loader loader(*run.data.train_set, run.data.calibration, run.data.evaluation_transform,
                {.batch_size = images, .workers = run.data.workers});
  bool first = true;
  for (Batch batch; loader.next(batch); first = false) {
    throw_if_interrupted();
    if (batch.size < images && !first) break;  // whose statistics are those of few images
    if (!see(network_input(batch, run.data, run.device))) break;
  }
}

/// Returns whether the ranges of activations are to follow the data; otherwise they stay as calibrated, or learn.
/// quant.scales auto: where the calibrated ones lose much, they are not those of the values that training will see.
bool observes(const Run& run, QuantizedModel& model, std::optional<double>& lost) {
  if (run.recipe.quant.scales || edge_scales(run) != EdgeScales::observed)
    return run.recipe.quant.scales == EdgeScales::observed;
  if (!model.has_scales()) return true;  // never calibrated: there is nothing to keep
  if (!lost) lost = HeldBack(model, run).lost(model);
  const EdgeScales scales = *lost > kMuchLost ? EdgeScales::observed : EdgeScales::fixed;
  say(fmt::format("quant.scales auto: {}: as calibrated {} of the outputs are lost, {} {}",
                  name_in(kEdgeScales, scales), percent(*lost), *lost > kMuchLost ? "more than" : "within",
                  percent(kMuchLost)));
  return scales == EdgeScales::observed;
}

/// Returns whether a network has running statistics of BatchNorm that images have made: the mean begins at 0.
bool has_statistics(const Graph& graph, const Weights& weights) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op == Op::batch_norm && weights.at(node.name + ".running_mean").ne(0).any().item<bool>();
  });
}

/// Returns from which share of the steps on BatchNorm's statistics stay. qat.freeze_batch_norm auto: from the first
/// step, where the calibrated ranges lose much of what BatchNorm makes of a batch and twice as much as of what it makes
/// with the running statistics: they were found with these. A network that explodes on a few images has others in each
/// batch, and ranges that follow these ruin it. note: gets why.
double freeze_batch_norm(const Run& run, QuantizedModel& model, std::optional<double>& lost, std::string& note) {
  if (run.recipe.qat.freeze_batch_norm) return *run.recipe.qat.freeze_batch_norm;
  constexpr double kTimes = 2;
  const bool follows = run.recipe.quant.scales == EdgeScales::observed;
  const bool begins = !follows && model.has_scales() && run.recipe.parallel.stages.empty();
  if (!begins || !has_statistics(run.graph, model.weights())) return kUsualFreeze;
  const auto of_first = [&](double mine) {  // the first process decides
    if (!run.ranks) return mine;
    const at::TensorOptions place = at::device(device_of(model.weights())).dtype(at::kDouble);
    return run.ranks->gather(at::tensor({mine}, place))[0].item<double>();
  };
  const double of_batches = of_first(lost_in_training(model, run));
  if (of_batches <= kMuchLost) return kUsualFreeze;
  if (!lost) lost = HeldBack(model, run).lost(model);
  const double running = of_first(*lost);
  if (of_batches <= kTimes * running) return kUsualFreeze;
  note = fmt::format(
      "qat.freeze_batch_norm auto: 0, ranges as calibrated: with BatchNorm's statistics of each batch {} of the "
      "outputs "
      "are lost, {} with the running ones",
      percent(of_batches), percent(running));
  say(note);
  return 0;
}

/// Sets the ranges that learn or follow to those of the values that training sees, with BatchNorm's statistics of each
/// batch. Those of evaluation, which calibration saw, may be a thousand times as wide: a scale does not learn that far,
/// and a moving average takes hundreds of steps, in the first of which all values of a layer may get one code.
void start_moving_ranges(const Run& run, QuantizedModel& model) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  QuantizedModel seen = make_quantized(run, copies_of(model.weights()));  // whose running statistics move
  for_steps(run, [&](const at::Tensor& x) {
    seen.forward(x, {.batch_norm_training = true, .observe = true, .quantize = false});
    return true;
  });
  seen.calibrate(recipe.method.value_or(CalibrationMethod::mse), recipe.percentile);
  model.set_edges(seen.edges());
  if (run.ranks) take_from_first(*run.ranks, model.weights(), &model);
}

}  // namespace

double lost_in_training(const QuantizedModel& model, const Run& run) {
  constexpr size_t kBatches = 2;
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  QuantizedModel copy = make_quantized(run, copies_of(model.weights()));  // whose running statistics move
  copy.load_state(model.state());
  const Graph& graph = copy.prepared().graph;
  const auto outputs = [&](const at::Tensor& x, bool quantize) {
    std::vector<at::Tensor> y(graph.outputs.size());
    copy.forward(x, {.batch_norm_training = true, .quantize = quantize}, [&](int n, const at::Tensor& node) {
      for (size_t o = 0; o < y.size(); ++o)
        if (graph.outputs[o] == n) y[o] = node;
    });
    return y;
  };
  std::vector<std::vector<at::Tensor>> wanted, got;
  for_steps(run, [&](const at::Tensor& x) {
    wanted.push_back(outputs(x, false));
    got.push_back(outputs(x, true));
    return wanted.size() < kBatches;
  });
  return mean_lost(output_errors(graph, FloatOutputs(std::move(wanted)), [&](size_t batch) { return got[batch]; }));
}

QatStart start_qat(const Run& run, QuantizedModel& model, std::optional<double> lost) {
  QatStart start{.scales = edge_scales(run)};
  start.freeze_batch_norm = freeze_batch_norm(run, model, lost, start.note);
  const bool fits = !start.note.empty();  // the calibrated ranges, to the statistics that stay
  if (!learn(start.scales))
    start.scales = !fits && observes(run, model, lost) ? EdgeScales::observed : EdgeScales::fixed;
  const bool live = start.freeze_batch_norm > 0;  // else training sees what calibration saw
  if (live && model.has_scales() && !run.recipe.quant.scales && start.scales != EdgeScales::fixed)
    start_moving_ranges(run, model);
  return start;
}

}  // namespace octet
