// What quantization costs each layer, for the report.
#pragma once

#include <vector>

#include "src/eval/report.h"
#include "src/qat/quantized_model.h"

namespace octet {

/// One entry a node of the fused graph. sqnr_db compares the float network's output x with fake_quantize(x), so that it
/// is the layer's own loss, not what earlier layers pass on; infinite SQNR (nothing lost) and the last node, which is
/// not quantized, give 0. x: normalized float [N, C, H, W], a few dozen images. `kernel` stays empty.
std::vector<LayerStatistics> layer_statistics(const QuantizedModel& model, const at::Tensor& x);

}  // namespace octet
