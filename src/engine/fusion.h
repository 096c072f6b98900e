// Which nodes an engine computes in one pass. Fusion is the program's affair: a tap still sees every node.
#pragma once

#include <vector>

#include "src/graph/int8_graph.h"

namespace octet {

/// By node: for a lookup that nothing but itself needs the codes of, the conv2d or linear that can write table[code]
/// right away; -1 for every other node. Such a convolution runs only for a tap: without one its codes are never stored.
std::vector<int> merged_convolutions(const Int8Graph& graph);

}  // namespace octet
