// SPDX-License-Identifier: Apache-2.0
// What a step of training would make of a network, measured on calibration images before QAT begins.
#pragma once

#include <optional>

#include "src/train/qat/quantized_model.h"
#include "trainers/run/run.h"

namespace octet {

/// What a step of training makes of a network's outputs, as shares of them.
struct InTraining {
  double lost = 0;   ///< to the model's ranges
  double moved = 0;  ///< without quantization, from what BatchNorm's running statistics make of them
};

/// Measures a model that has ranges on two batches of calibration images, of which the first process's decide; empty
/// where there are none of half a step. The model stays as it is. batch_statistics: false: BatchNorm normalizes by its
/// running statistics, as where these stay.
std::optional<InTraining> in_training(const QuantizedModel& model, const Run& run, bool batch_statistics = true);

/// Returns a copy of the model that has observed the calibration images as batches of training, in that mode; where it
/// quantizes, the ranges have followed them.
QuantizedModel after_batches(const Run& run, const QuantizedModel& model, const QuantizedModel::Mode& mode);

/// Returns what the first process measured, by which all decide. mine: what this one measured of the model.
double of_first(const Run& run, const QuantizedModel& model, double mine);

}  // namespace octet
