// What every rank found by itself over the same pictures: on GPUs its sums may differ in their last bits.
#pragma once

#include "src/model/model.h"
#include "src/qat/quantized_model.h"
#include "trainers/ranks/ranks.h"

namespace octet {

/// Rank 0's weights and, without null, quantizers on all ranks. Waits for ranks that work, for as long as they live.
void take_from_first(Ranks& ranks, const Weights& weights, QuantizedModel* quantized);

}  // namespace octet
