// Random networks and random bit plans for them, for every test that holds one side's codes against another's.
#pragma once

#include <cstdint>

#include "src/graph/graph.h"
#include "src/quant/quant_spec.h"

namespace octet::test {

/// Four to nine random nodes of every kind between the picture and the logits: windows, strides, dilations and pictures
/// of unequal sides, groups, depthwise. `branches`: percent of the nodes that come to be a branch which is added or
/// concatenated, besides those that are one anyway. Up to two outputs more than the logits, which come first: values on
/// the way, and heads of their own; `classifier`: none.
Graph random_graph(uint64_t seed, int branches = 0, bool classifier = false);

/// A random bit plan: scheme, granularity, both ranges of weight codes, 2 to 8 bits for everything there is a key for,
/// and up to three single layers of `graph`.
QuantSpec random_quant(const Graph& graph, uint64_t seed);

}  // namespace octet::test
