// SPDX-License-Identifier: Apache-2.0
// Random networks and random bit plans for them, for every test that holds one side's codes against another's.
#pragma once

#include <cstdint>

#include "src/net/graph.h"
#include "src/quant/plan.h"

namespace octet::test {

/// Returns a graph with four to nine random nodes of every kind between input and logits: windows, strides, dilations
/// and images of unequal sides, groups, depthwise. `branches` is the percentage of nodes that become a branch which is
/// added or concatenated, besides those that are one anyway. The logits come first; there are up to two further
/// outputs, inner values or heads of their own, but none for a `classifier`.
Graph random_graph(uint64_t seed, int branches = 0, bool classifier = false);

/// Returns a random bit plan: scheme, granularity, range of weight codes, 2 to 8 bits for every key, and entries for up
/// to three layers of `graph`.
QuantSpec random_quant(const Graph& graph, uint64_t seed);

}  // namespace octet::test
