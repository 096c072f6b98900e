// SPDX-License-Identifier: Apache-2.0
// Which launches may run concurrently, by the memory that each reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "src/engine/fusion.h"
#include "src/net/int8_graph.h"

namespace octet {

/// The bytes [first, first + count).
struct ByteRange {
  const uint8_t* first = nullptr;
  size_t count = 0;
};

/// The activations that one launch reads and writes.
struct Traffic {
  std::vector<ByteRange> reads, writes;
};

/// Whether two launches may run in any order or concurrently: neither writes a byte that the other reads or writes.
bool independent(const Traffic& a, const Traffic& b);

/// Returns the traffic of a node's own kernel; `output(node)` is where a node's output lies. An input node reads no
/// activations.
Traffic traffic_of(const Int8Graph& graph, int node, const std::function<ByteRange(int node)>& output);

/// Returns the traffic of one kernel that computes the group. It neither reads nor writes what lies between the nodes,
/// except that an expand_reduce writes the first node's output too.
Traffic traffic_of(const Int8Graph& graph, const NodeGroup& group, const std::function<ByteRange(int node)>& output);

}  // namespace octet
