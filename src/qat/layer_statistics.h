// What quantization costs each layer, for the report.
#pragma once

#include <vector>

#include "src/qat/quantized_model.h"
#include "src/quant/layer_statistics.h"

namespace octet {

/// One entry a node of the fused graph. sqnr_db compares each output of the float network with the simulation's, so
/// that it shows how quantization noise builds up towards the logits; infinite where nothing is lost. x:
/// normalized float [N, C, H, W] where the weights are, a few dozen images.
std::vector<LayerStatistics> layer_statistics(const QuantizedModel& model, const at::Tensor& x);

}  // namespace octet
