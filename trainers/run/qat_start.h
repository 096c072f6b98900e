// SPDX-License-Identifier: Apache-2.0
// How QAT begins: whether the ranges of activations stay, follow the data or learn, where those that move begin, and
// from which step on BatchNorm's statistics stay.
#pragma once

#include <optional>
#include <string>

#include "src/quant/calibrate.h"
#include "src/train/qat/quantized_model.h"
#include "trainers/run/run.h"

namespace octet {

struct QatStart {
  EdgeScales scales = EdgeScales::fixed;
  double freeze_batch_norm = kUsualFreeze;  ///< share of the steps after which BatchNorm's statistics stay
  std::string note;                         ///< for the report: why auto chose that share; "": nothing was chosen
};

/// Returns quant.scales and qat.freeze_batch_norm or, where the recipe leaves them to octet, what suits the model, and
/// says why. Sets ranges that move to those of the values that training sees. model: as calibrated, if it was; lost:
/// the share of the outputs that it then loses, if that is known.
QatStart start_qat(const Run& run, QuantizedModel& model, std::optional<double> lost);

/// Returns the share of the outputs that a calibrated model loses in a step of training, where BatchNorm normalizes by
/// each batch: the mean over two batches of calibration images. The model stays as it is.
double lost_in_training(const QuantizedModel& model, const Run& run);

}  // namespace octet
