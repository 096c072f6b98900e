// SPDX-License-Identifier: Apache-2.0
// calibrate.channel_scales: whether functions such as SiLU get a scale for each channel, judged as calibrate.method
// auto judges ranges.
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/train/model/numerics.h"
#include "src/train/repair/channel_scales.h"
#include "trainers/loop/batches.h"
#include "trainers/run/auto_ranges.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr const char* kKey = "calibrate.channel_scales";

Weights cloned(const Weights& weights) {
  Weights copies;
  for (const auto& [name, tensor] : weights)
    copies[name] = tensor.detach().clone().requires_grad_(tensor.requires_grad());
  return copies;
}

/// Returns some calibration images, evenly spaced, in batches: enough to choose which functions get scales.
std::vector<at::Tensor> some_images(const Run& run) {
  constexpr size_t kImages = 32;
  const RunData& data = run.data;
  Loader loader(*data.train_set, evenly_spaced(data.calibration, std::min(kImages, data.calibration.size())),
                data.evaluation_transform, {.batch_size = run.recipe.calibrate.batch_size, .workers = data.workers});
  std::vector<at::Tensor> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(network_input(batch, data, run.device));
  return batches;
}

}  // namespace

CalibratedRanges calibrate_as_recipe(QuantizedModel& model, const Run& run) try {
  if (!run.recipe.calibrate.channel_scales) return calibrate(model, run);
  constexpr double kLittle = 0.01;  // lost: not worth tables for each channel
  const at::NoGradGuard no_grad;
  const FullPrecision full;
  Weights floats = cloned(model.weights());  // repairs change the model's
  QuantizedModel original = make_quantized(run, floats);
  const HeldBack held(original, run);
  CalibratedRanges ranges = calibrate(model, run);
  const double before = held.lost(model);
  ChannelScales channels(original);
  const auto unchanged = [&](const std::string& why) {
    say(fmt::format("{}: none: {}", kKey, why));
    return ranges;
  };
  if (!channels.any()) return unchanged("no function such as SiLU stands behind a layer that nothing else reads");
  if (before < kLittle) return unchanged(fmt::format("{} of the outputs are lost without", percent(before)));

  const std::vector<at::Tensor> images = some_images(run);
  for (const at::Tensor& x : images) channels.see(x);
  const auto chosen = channels.best(run.graph, floats, [&](const Graph&, const Weights& weights) {
    throw_if_interrupted();
    QuantizedModel trial = make_quantized(run, weights);
    for (const at::Tensor& x : images) trial.forward(x, {.observe = true, .quantize = false});
    trial.calibrate(ranges.taken.method, ranges.taken.percentile);
    return held.lost(trial);
  });
  if (!chosen) return unchanged(fmt::format("with them no less is lost than {}", percent(before)));
  say(fmt::format("{}: calibrating with them", kKey));
  QuantizedModel scaled = make_quantized(run, chosen->weights);
  CalibratedRanges its;
  try {
    its = calibrate(scaled, run);
  } catch (const Error& error) {
    if (error.code() != ExitCode::promise) throw;
    return unchanged(fmt::format("with them {}", error.what()));  // the network without them is calibrated
  }
  const double after = held.lost(scaled);
  if (!(after <= ChannelScales::kPays * before))
    return unchanged(fmt::format("{} of the outputs would be lost, {} without", percent(after), percent(before)));
  its.lost = after;
  const std::string taken =
      fmt::format("{}: {}: {} of the outputs lost, {} without", kKey,
                  counted(static_cast<long>(chosen->lookups.size()), "function"), percent(after), percent(before));
  say(taken);
  its.chosen += (its.chosen.empty() ? "" : "; ") + taken;
  model = std::move(scaled);
  return its;
} catch (const c10::OutOfMemoryError&) {
  throw promise_error(fmt::format("{}: the GPU is out of memory with calibrate.batch_size {}; take a smaller one", kKey,
                                  run.recipe.calibrate.batch_size));
}

}  // namespace octet
