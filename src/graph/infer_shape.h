// Shape inference of a single node, for who builds a graph and must know shapes on the way.
#pragma once

#include "src/graph/graph.h"

namespace octet {

/// Fills the shape of `node`, which is or becomes graph.nodes[index], from the nodes before it, whose shapes are known.
/// Throws Error(usage) as infer_shapes() does.
void infer_shape(const Graph& graph, Node& node, int index);

}  // namespace octet
