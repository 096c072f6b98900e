// Which of two launches may run at the same time, by the memory that each reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "src/engine/fusion.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// `count` bytes from `first`.
struct ByteRange {
  const uint8_t* first = nullptr;
  size_t count = 0;
};

/// What one launch reads and writes of the network's activations.
struct Traffic {
  std::vector<ByteRange> reads, writes;
};

/// Whether they may run in any order, or at once: neither writes a byte that the other reads or writes.
bool independent(const Traffic& a, const Traffic& b);

/// Of a node's own kernel. `output`: where a node's output lies. An input node reads no node's memory.
Traffic traffic_of(const Int8Graph& graph, int node, const std::function<ByteRange(int node)>& output);

/// Of one kernel that computes the group: what lies between its nodes it neither reads nor writes, but for
/// expand_reduce, which writes the first one's output too.
Traffic traffic_of(const Int8Graph& graph, const NodeGroup& group, const std::function<ByteRange(int node)>& output);

}  // namespace octet
