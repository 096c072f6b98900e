// Ranges of activations from the calibration images, and the repairs of a network that is not trained any more.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/core.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/model/device.h"
#include "src/qat/channel_moments.h"
#include "src/qat/correct_biases.h"
#include "src/quant/equalize.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

/// Of activations.
int fewest_bits(const Prepared& prepared) {
  int fewest = 8;
  for (const int bits : prepared.bits.activation_bits) {
    if (bits != 0) fewest = std::min(fewest, bits);
  }
  return fewest;
}

/// Calls take(x) for the batches of so many calibration images, from all over the list: a folder's are sorted by class.
template <class Take>
void for_batches(const Run& run, const char* what, size_t images, const Take& take) {
  const RunData& data = run.data;
  const size_t count = std::min(images, data.calibration.size());
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i) indices.push_back(data.calibration[i * data.calibration.size() / count]);
  Loader loader(*data.train_set, indices, data.evaluation_transform,
                {.batch_size = run.recipe.calibrate.batch_size, .workers = data.workers});
  Progress progress(what, static_cast<long>(indices.size()));
  Batch batch;
  for (long seen = 0; loader.next(batch);) {
    take(images_to_tensor({batch.images.data(), batch.size, run.graph.nodes.front().shape}, data.mean, data.std,
                          run.device));
    progress.update(seen += batch.size);
    throw_if_interrupted();
  }
}

void equalize_model(const QuantizedModel& model, const Run& run) {
  const Graph& graph = model.prepared().graph;
  FloatParams params = float_params(model.weights());
  equalize(graph, params);
  set_float_params(model.weights(), params);
  MomentsObserver moments(graph, model.weights());
  for_batches(run, "equalize", run.data.calibration.size(), [&](const at::Tensor& x) { moments.see(x); });
  absorb_biases(graph, moments.moments(), params);
  set_float_params(model.weights(), params);
}

void correct_model(QuantizedModel& model, const Run& run) {
  MomentsObserver moments(model.prepared().graph, model.weights());
  std::vector<at::Tensor> pictures;
  for_batches(run, "correct biases", static_cast<size_t>(run.recipe.calibrate.repair_images), [&](const at::Tensor& x) {
    moments.see(x);
    pictures.push_back(x);
  });
  correct_biases(model, moments.moments(), at::cat(pictures));
}

void find_ranges(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  if (const int bits = fewest_bits(model.prepared()); recipe.method == "entropy" && bits < 8) {
    say(
        fmt::format("note: calibrate.method entropy was made for 8 bits; for activations of {} it clips too little, "
                    "and mse rounds with less error",
                    bits));
  }
  for_batches(run, "calibrate", run.data.calibration.size(),
              [&](const at::Tensor& x) { model.forward(x, {.observe = true, .quantize = false}); });
  model.calibrate(value_named(kCalibrationMethods, recipe.method, "calibrate.method"), recipe.percentile);
}

}  // namespace

void calibrate(QuantizedModel& model, const Run& run) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const FullPrecision full;  // ranges are those of the float network, on every device
  const at::NoGradGuard no_grad;
  try {
    if (recipe.equalize) equalize_model(model, run);
    find_ranges(model, run);
    if (recipe.bias_correction) correct_model(model, run);
  } catch (const c10::OutOfMemoryError&) {
    throw promise_error(fmt::format(
        "calibrate: the GPU is out of memory with calibrate.batch_size {}{}; take a smaller one", recipe.batch_size,
        recipe.bias_correction ? fmt::format(" and repair_images {}", recipe.repair_images) : ""));
  }
  if (run.ranks == nullptr) return;
  std::map<std::string, at::Tensor> state = model.state();  // on GPUs sums may differ in their last bits
  run.ranks->copy_from_first(state);
  model.load_state(state);
}

}  // namespace octet
