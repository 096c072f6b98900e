// SPDX-License-Identifier: Apache-2.0
// What is chosen by how little it changes the outputs for images that were not calibrated on: the ranges of activations
// of calibrate.method: auto; with calibrate.channel_scales (calibrate_as_recipe() in run.h) whether functions such as
// SiLU get a scale for each channel.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "src/train/qat/quantized_model.h"
#include "src/train/repair/output_error.h"
#include "trainers/run/run.h"

namespace octet {

/// Returns the name of ranges: "percentile 99.9", "joint".
std::string text_of(const RangeMethod& ranges);

/// The methods that auto tries: all of them, a percentile that clips more, and joint_ranges().
std::vector<RangeMethod> range_methods();

/// Why joint_ranges() was not tried (ChosenRanges::joint_fits), and what is said then.
inline constexpr const char* kNoJoint = "one image's gradients exceed the GPU's memory";
std::string joint_left_out();

/// Returns which of the calibration images joint_ranges() takes.
std::vector<size_t> indices_for_joint_ranges(const Run& run);
/// Returns these, in batches of calibration_batch() or calibrate.batch_size, of which the smaller.
std::vector<at::Tensor> images_for_joint_ranges(const Run& run);

/// Calls choose_ranges() for a calibrated model, with its progress: the methods, and if there are several a dozen
/// trials of single edges. seen: images_for_joint_ranges().
ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods,
                           const SeenImages& seen);

/// Validation images, an eighth as many as calibration takes, and what the float network makes of them. Their labels
/// are not used.
class HeldBack {
 public:
  /// Takes the outputs of the float network as it is now; repairs may then change it.
  HeldBack(QuantizedModel& model, const Run& run);

  /// Replaces the ranges of a model of that network, which is calibrated, by those that lose least, and returns which
  /// and why: "calibrate.method auto: percentile 99.9, for 3 edges another: 0.42 % of the outputs lost for 64
  /// validation images (mse 0.61 %, ...)", and how much is lost. seen: images_for_joint_ranges().
  CalibratedRanges choose_ranges(QuantizedModel& model, const SeenImages& seen) const;

  /// Returns the share of the outputs that a model of the same float network, as it is now, loses:
  /// OutputErrors::lost().
  double lost(QuantizedModel& model) const { return OutputErrors(model, x_, wanted_).lost(); }
  const std::vector<at::Tensor>& median() const { return wanted_.median; }  ///< of the float network's outputs

 private:
  std::vector<at::Tensor> x_;
  FloatOutputs wanted_;
};

}  // namespace octet
