// How far is what runs from what was trained? The forward pass of QAT as a Program, to be counted against the QAT
// graph.
#pragma once

#include <memory>

#include "src/model/autocast.h"
#include "src/qat/quantized_model.h"

namespace octet {

/// The forward pass that QAT trains through, in evaluation mode: dequantized values, float convolutions, autocast in
/// `precision`, and TF32 on a GPU where the process allows it. Its taps show the codes that its values stand for; they
/// are near the engines' codes, not equal to them.
std::unique_ptr<Program> trained_forward_program(const QuantizedModel& model, const Preprocessing& preprocessing,
                                                 Precision precision);

}  // namespace octet
