// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/auto_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "trainers/run/quantize_inputs.h"

namespace octet {
namespace {

constexpr size_t kFewest = 8, kMost = 64;  // images: fewer say little, more take long
constexpr size_t kShare = 8;               // calibration images for one that is held back

std::string text_of(const RangeMethod& ranges) {
  const std::string name(name_in(kCalibrationMethods, ranges.method));
  return ranges.method == CalibrationMethod::percentile ? fmt::format("{} {:g}", name, ranges.percentile) : name;
}

std::string text_of(const ChosenRanges& ranges, size_t images) {
  std::string tried;
  for (const ChosenRanges::Trial& trial : ranges.trials)
    tried += fmt::format("{}{} {}", tried.empty() ? "" : ", ", text_of(trial.ranges), percent(trial.lost));
  const auto others = static_cast<long>(ranges.edges.size());
  return fmt::format("calibrate.method auto: {}{}: {} of the outputs lost for {} ({})",
                     text_of(ranges.trials[ranges.chosen].ranges),
                     others == 0 ? "" : fmt::format(", for {} another", counted(others, "edge")), percent(ranges.lost),
                     counted(static_cast<long>(images), "validation image"), tried);
}

/// Returns validation images in batches as the trials are fastest with.
std::vector<at::Tensor> held_back(const Run& run) {
  const auto images = static_cast<int>(std::clamp(run.data.calibration.size() / kShare, kFewest, kMost));
  std::vector<at::Tensor> batches;
  for (const at::Tensor& x : validation_pictures(run, images))
    for (const at::Tensor& part : x.split(calibration_batch(run))) batches.push_back(part);
  return batches;
}

}  // namespace

std::vector<RangeMethod> range_methods() {
  return {{CalibrationMethod::mse},
          {CalibrationMethod::minmax},
          {CalibrationMethod::percentile, 99.99},
          {CalibrationMethod::percentile, 99.9},
          {CalibrationMethod::entropy}};
}

ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods) {
  constexpr int kEdges = 12;  // trials of single edges
  const int trials = static_cast<int>(methods.size()) + (methods.size() > 1 ? kEdges : 0);
  Progress progress("choose ranges", trials, "trials");
  return choose_ranges(model, errors, methods, trials, [&](int trial) {
    progress.update(trial + 1);
    throw_if_interrupted();
  });
}

HeldBack::HeldBack(QuantizedModel& model, const Run& run)
    : model_(model), x_(held_back(run)), wanted_(float_outputs(model, x_)) {}

CalibratedRanges HeldBack::choose_ranges() {
  size_t images = 0;
  for (const at::Tensor& batch : x_) images += static_cast<size_t>(batch.size(0));
  const ChosenRanges ranges = octet::choose_ranges(model_, OutputErrors(model_, x_, wanted_), range_methods());
  return {text_of(ranges, images), ranges.trials[ranges.chosen].ranges, ranges.lost};
}

}  // namespace octet
