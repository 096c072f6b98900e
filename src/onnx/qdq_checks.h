// What the QDQ form cannot say of a node: refused before it is written.
#pragma once

#include "src/graph/int8_graph.h"
#include "src/onnx/export.h"

namespace octet {

/// Throws Error(usage) naming the node where its multipliers are not its edges' scales, its table is not its
/// function's, or the profile does not take its codes.
void check_expressible(const Int8Graph& graph, const Int8Node& node, OnnxProfile profile);

}  // namespace octet
