// Which layers can have 2:4 sparse weights (kernels/sparsity/two_of_four.h).
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace octet {

/// The rows of a conv2d's or linear's weight: [inputs, taps] as PyTorch counts it. A linear behind a flatten sees the
/// pixels of the flattened image as taps.
struct WeightRows {
  long inputs = 0, taps = 0;
};
WeightRows weight_rows(const Graph& graph, int node);

/// By node of a fused graph why its weights stay dense: "" where they can be sparse or there are none. The first
/// layers, which read the picture, are left alone as usual; depthwise ones have no four input channels; nor do those
/// whose input channels are not a multiple of four.
std::vector<std::string> dense_reasons(const Graph& fused);

}  // namespace octet
