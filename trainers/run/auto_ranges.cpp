// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/auto_ranges.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/train/model/device.h"
#include "src/train/repair/channel_scales.h"
#include "src/train/repair/joint_ranges.h"
#include "trainers/loop/batches.h"
#include "trainers/run/quantize.h"

namespace octet {
namespace {

constexpr size_t kFewest = 8, kMost = 64;  // images: fewer say little, more take long
constexpr size_t kShare = 8;               // calibration images for one that is held back

std::string text_of(const ChosenRanges& ranges, size_t images) {
  std::string tried;
  for (const ChosenRanges::Trial& trial : ranges.trials)
    tried += fmt::format("{}{} {}", tried.empty() ? "" : ", ", text_of(trial.ranges), percent(trial.lost));
  if (!ranges.joint_fits) tried += fmt::format(", {}", joint_left_out());
  const auto others = static_cast<long>(ranges.edges.size());
  return fmt::format("calibrate.method auto: {}{}: {} of the outputs lost for {} ({})", text_of(ranges.chosen_method()),
                     others == 0 ? "" : fmt::format(", for {} another", counted(others, "edge")), percent(ranges.lost),
                     counted(static_cast<long>(images), "validation image"), tried);
}

/// Returns validation images in batches as the trials are fastest with.
std::vector<at::Tensor> held_back(const Run& run) {
  const auto images = static_cast<int>(std::clamp(run.data.calibration.size() / kShare, kFewest, kMost));
  std::vector<at::Tensor> batches;
  for (const at::Tensor& x : validation_inputs(run, images))
    for (const at::Tensor& part : x.split(calibration_batch(run))) batches.push_back(part);
  return batches;
}

constexpr const char* kChannelScales = "calibrate.channel_scales";
constexpr size_t kScaleImages = 32;  // of calibration: enough to choose which functions get scales

/// What scales of channels must bring: the share of the outputs that is lost without them, and how much of it may be
/// left with them. Functions that have them run by themselves, so auto takes them for a large gain only.
struct Gain {
  double lost, left;
};
constexpr Gain kAsked{0.01, ChannelScales::kPays}, kLarge{0.02, 0.75};

/// Whether calibrate.channel_scales: auto tries them: in one process, with codes of eight bits, as measured, for a
/// network that has such functions, and with no repair that would be made twice.
bool may_scale(const Run& run, const Graph& fused) {
  const Recipe& recipe = run.recipe;
  const CalibrateRecipe& c = recipe.calibrate;
  const bool repairs = c.equalize || c.bias_correction || c.rounding != WeightRounding::nearest || c.distill_steps > 0;
  return !run.ranks && recipe.parallel.stages.empty() && !repairs && recipe.quant.least_activation_bits() == 8 &&
         recipe.qat.forward == QatForward::simulation && !function_pairs(fused).empty();
}

}  // namespace

std::string text_of(const RangeMethod& ranges) {
  if (ranges.joint()) return "joint";
  const std::string name(name_in(kCalibrationMethods, *ranges.method));
  return ranges.method == CalibrationMethod::percentile ? fmt::format("{} {:g}", name, ranges.percentile) : name;
}

std::string joint_left_out() { return fmt::format("joint left out: {}", kNoJoint); }

std::vector<RangeMethod> range_methods() {
  return {{CalibrationMethod::mse},
          {CalibrationMethod::minmax},
          {CalibrationMethod::percentile, 99.99},
          {CalibrationMethod::percentile, 99.9},
          {CalibrationMethod::entropy},
          kJointRanges};
}

std::vector<size_t> indices_for_joint_ranges(const Run& run) {
  constexpr size_t kLeast = 32, kMost = 128, kShare = 4;  // with their gradients they take as long as all the others
  const std::vector<size_t>& all = run.data.calibration;
  return evenly_spaced(all, std::min(all.size(), std::clamp(all.size() / kShare, kLeast, kMost)));
}

std::vector<at::Tensor> images_for_joint_ranges(const Run& run) {
  std::vector<at::Tensor> batches;
  for (const at::Tensor& x : input_batches(run, indices_for_joint_ranges(run)))
    for (const at::Tensor& part : x.split(run.recipe.calibrate.batch_size)) batches.push_back(part);
  return batches;
}

ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods,
                           const SeenImages& seen) {
  constexpr int kEdges = 12;  // trials of single edges
  const int trials = static_cast<int>(methods.size()) + (methods.size() > 1 ? kEdges : 0);
  Progress progress("choose ranges", trials, "trials");
  return choose_ranges(model, errors, methods, seen, trials, [&](int trial) {
    progress.update(trial + 1);
    throw_if_interrupted();
  });
}

HeldBack::HeldBack(QuantizedModel& model, const Run& run) : x_(held_back(run)), wanted_(float_outputs(model, x_)) {}

CalibratedRanges HeldBack::choose_ranges(QuantizedModel& model, const SeenImages& seen) const {
  size_t images = 0;
  for (const at::Tensor& batch : x_) images += static_cast<size_t>(batch.size(0));
  const ChosenRanges ranges = octet::choose_ranges(model, OutputErrors(model, x_, wanted_), range_methods(), seen);
  return {.chosen = text_of(ranges, images),
          .taken = ranges.chosen_method(),
          .alone = ranges.best_method(),
          .lost = ranges.lost};
}

CalibratedRanges calibrate_as_recipe(QuantizedModel& model, const Run& run, CalibrationPass* pass) try {
  const ScaleChannels wanted = run.recipe.calibrate.channel_scales;
  const bool by_itself = wanted == ScaleChannels::automatic;
  if (wanted == ScaleChannels::off || (by_itself && !may_scale(run, model.prepared().graph)))
    return calibrate(model, run, {.pass = pass});
  const Gain gain = by_itself ? kLarge : kAsked;
  const std::string key = fmt::format("{}{}", kChannelScales, by_itself ? " auto" : "");
  const at::NoGradGuard no_grad;
  const FullPrecision full;
  const Weights floats = copies_of(model.weights());  // repairs change the model's
  for (const auto& [name, tensor] : model.weights()) floats.at(name).set_requires_grad(tensor.requires_grad());
  QuantizedModel original = make_quantized(run, floats);
  const HeldBack held(original, run);
  CalibratedRanges ranges = calibrate(model, run, {.held = &held, .pass = pass});
  const double before = held.lost(model);
  ChannelScales channels(original);
  const auto unchanged = [&](const std::string& why) {
    say(fmt::format("{}: none: {}", key, why));
    return ranges;
  };
  if (!channels.any()) return unchanged("no function such as SiLU stands behind a layer that nothing else reads");
  if (before < gain.lost) return unchanged(fmt::format("{} of the outputs are lost without", percent(before)));

  std::vector<at::Tensor> images;
  const std::vector<size_t>& all = run.data.calibration;
  for_inputs(run.data, *run.data.train_set, evenly_spaced(all, std::min(kScaleImages, all.size())),
             run.recipe.calibrate.batch_size, run.device, [&](const at::Tensor& x) { images.push_back(x); });
  for (const at::Tensor& x : images) channels.see(x);
  bool joint = ranges.taken.joint();
  const auto chosen = channels.best(run.graph, floats, [&](const Graph&, const Weights& weights) {
    throw_if_interrupted();
    QuantizedModel trial = make_quantized(run, weights);
    SeenImages seen{images, {}};
    for (const at::Tensor& x : images)
      trial.forward(x, {.observe = true, .quantize = false},
                    [&](int n, const at::Tensor& y) { seen.see(trial.prepared(), n, y); });
    trial.calibrate(*ranges.alone.method, ranges.alone.percentile);
    if (joint && !set_joint_ranges(trial, seen, held.median(), throw_if_interrupted)) {
      joint = false;  // nor does it fit in the next ones
      say(fmt::format("{}: {}", key, joint_left_out()));
    }
    return held.lost(trial);
  });
  if (!chosen) return unchanged(fmt::format("with them no less is lost than {}", percent(before)));
  say(fmt::format("{}: calibrating with them", key));
  QuantizedModel scaled = make_quantized(run, chosen->weights);
  CalibratedRanges its;
  try {
    its = calibrate(scaled, run);
  } catch (const Error& error) {
    if (error.code() != ExitCode::promise) throw;
    return unchanged(fmt::format("with them {}", error.what()));  // the network without them is calibrated
  }
  const double after = held.lost(scaled);
  if (!(after <= gain.left * before))
    return unchanged(fmt::format("{} of the outputs would be lost, {} without", percent(after), percent(before)));
  its.lost = after;
  const std::string taken =
      fmt::format("{}: {}: {} of the outputs lost, {} without", key,
                  counted(static_cast<long>(chosen->lookups.size()), "function"), percent(after), percent(before));
  say(taken);
  its.chosen += (its.chosen.empty() ? "" : "; ") + taken;
  model = std::move(scaled);
  return its;
} catch (const c10::OutOfMemoryError&) {
  throw promise_error(fmt::format("{}: the GPU is out of memory with calibrate.batch_size {}; take a smaller one",
                                  kChannelScales, run.recipe.calibrate.batch_size));
}

}  // namespace octet
