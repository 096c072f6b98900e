// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/in_training.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "src/base/progress.h"
#include "src/train/model/device.h"
#include "src/train/repair/output_error.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

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

}  // namespace

double of_first(const Run& run, const QuantizedModel& model, double mine) {
  if (!run.ranks) return mine;
  const at::TensorOptions place = at::device(device_of(model.weights())).dtype(at::kDouble);
  return run.ranks->gather(at::tensor({mine}, place))[0].item<double>();
}

QuantizedModel after_batches(const Run& run, const QuantizedModel& model, const QuantizedModel::Mode& mode) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  QuantizedModel copy = make_quantized(run, copies_of(model.weights()));  // whose running statistics move
  if (mode.quantize) {
    copy.load_state(model.state());
    copy.restart_observers();
  }
  for_steps(run, [&](const at::Tensor& x) {
    copy.forward(x, mode);
    return true;
  });
  return copy;
}

std::optional<InTraining> in_training(const QuantizedModel& model, const Run& run, bool batch_statistics) {
  constexpr size_t kBatches = 2;
  constexpr int kOfStep = 2;  // half the images of a step have about its statistics
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  QuantizedModel copy = make_quantized(run, copies_of(model.weights()));  // whose running statistics move
  copy.load_state(model.state());
  const Graph& graph = copy.prepared().graph;
  const auto outputs = [&](const at::Tensor& x, bool quantize) {
    std::vector<at::Tensor> y(graph.outputs.size());
    copy.forward(x, {.batch_norm_training = batch_statistics, .quantize = quantize},
                 [&](int n, const at::Tensor& node) {
                   for (size_t o = 0; o < y.size(); ++o)
                     if (graph.outputs[o] == n) y[o] = node;
                 });
    return y;
  };
  std::vector<at::Tensor> batches;
  for_steps(run, [&](const at::Tensor& x) {
    if (x.size(0) * kOfStep >= images_of_step(run)) batches.push_back(x);
    return batches.size() < kBatches;
  });
  if (batches.empty()) return std::nullopt;
  const FloatOutputs running = float_outputs(copy, batches);  // before batches move the statistics
  std::vector<std::vector<at::Tensor>> live, quantized;
  for (const at::Tensor& x : batches) {
    live.push_back(outputs(x, false));
    quantized.push_back(outputs(x, true));
  }
  const auto error_of = [&](const FloatOutputs& wanted, const auto& got) {
    return mean_lost(output_errors(graph, wanted, [&](size_t batch) { return got[batch]; }));
  };
  return InTraining{.lost = of_first(run, model, error_of(FloatOutputs(live), quantized)),
                    .moved = of_first(run, model, error_of(running, live))};
}

}  // namespace octet
