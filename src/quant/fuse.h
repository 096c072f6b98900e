// The first pass: chains of operators become the nodes that run.
#pragma once

#include "src/graph/graph.h"

namespace octet {

/// Merges conv2d/linear + batch_norm + add + relu/relu6 chains into one node where the inner results have one consumer.
/// The merged node keeps the convolution's name, so that parameter names stay; the result computes the same function.
///   add: the convolution that feeds only the add takes the other side as its residual (inputs[1]); of two such
///     convolutions the later one does, the earlier keeps its own edge. Adds without one stay.
///   relu, relu6: become the activation of a conv2d, linear, add, mul, concat, lookup, an average pool,
///     resize_bilinear, matmul or softmax, also in front of what passes codes on (max_pool, flatten, slice ...), with
///     which they commute. Where the value before is needed too they stay.
///   dropout is dropped, and so is a flatten of one pixel that is an output: logits are then the [classes, 1, 1] before
///     it. An output is read from outside, so nothing behind it is merged into it.
/// Throws Error(usage) for a bad graph, a node nobody reads, two outputs that are one value, and a batch_norm that
/// follows anything but a convolution or linear of its own (convolution-relu-batch_norm, pre-activation networks).
/// fuse(fuse(g)) is fuse(g). QAT trains the fused graph, hence without dropout.
Graph fuse(const Graph& graph);

}  // namespace octet
