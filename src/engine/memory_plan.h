// Where each activation lives: buffers whose lifetimes do not meet share memory in one arena.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "src/graph/int8_graph.h"

namespace octet {

/// A buffer is live from the step that writes it to the last step that reads it, both included.
struct BufferLife {
  size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  ///< one a buffer
  size_t bytes = 0;             ///< of the arena
};

/// Bytes that every buffer's offset is a multiple of.
inline constexpr size_t kBufferAlignment = 64;

/// `bytes`, rounded up to a multiple.
constexpr size_t aligned(size_t bytes, size_t alignment = kBufferAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Greedy best fit, largest buffers first: each goes into the smallest gap between the buffers that are live at the
/// same time (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5).
MemoryPlan plan_memory(const std::vector<BufferLife>& buffers);

/// Node n as step n. `bytes[n]` is the size of its output; `alias[n]` (n when it has its own) the node whose buffer it
/// shares, in which case bytes[n] is not used. The graph's outputs are live to the end. Buffers in node order; an
/// alias gets an empty one.
std::vector<BufferLife> lifetimes(const Int8Graph& graph, const std::vector<size_t>& bytes,
                                  const std::vector<int>& alias);

/// The most images, fewer than `batch`, that take at most `room` bytes; 0 when not even one fits. `bytes(images)` grows
/// with images.
int largest_batch(size_t room, int batch, const std::function<size_t(int)>& bytes);

}  // namespace octet
