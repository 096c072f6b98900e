// The last of calibrate's repairs.
#pragma once

#include "src/qat/quantized_model.h"
#include "trainers/run/run.h"

namespace octet {

/// recipe.calibrate.distill_steps of src/qat/reconstruct/distill.h, over the calibration images, augmented anew each
/// time as in training; labels are not looked at. `floats`: the weights as they were before they were rounded.
void distill_model(QuantizedModel& model, const Run& run, const Weights& floats);

}  // namespace octet
