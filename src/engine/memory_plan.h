// SPDX-License-Identifier: Apache-2.0
// Where activations lie: buffers whose lifetimes do not overlap share memory in one arena. And which launches may run
// concurrently, by the memory that each reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "src/engine/fusion.h"
#include "src/net/int8_graph.h"

namespace octet {

/// The lifetime of a buffer in steps: it is live from the step that writes it to the last step that reads it, both
/// included.
struct BufferLife {
  size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  ///< of each buffer in the arena
  size_t bytes = 0;             ///< size of the arena
};

/// Every buffer's offset is a multiple of so many bytes.
inline constexpr size_t kBufferAlignment = 64;

/// Returns `bytes`, rounded up to a multiple of `alignment`.
constexpr size_t aligned(size_t bytes, size_t alignment = kBufferAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Plans the arena by greedy best fit, largest buffers first: each goes into the smallest gap between the buffers that
/// are live at the same time (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
/// section 5).
MemoryPlan plan_memory(const std::vector<BufferLife>& buffers);

/// Returns the lifetime of each node's output, in node order; node n is step n. `bytes[n]` is the size of its output.
/// `alias[n]` is the node whose buffer it shares, or n for a buffer of its own; an alias gets an empty buffer. The
/// graph's outputs are live to the end.
std::vector<BufferLife> lifetimes(const Int8Graph& graph, const std::vector<size_t>& bytes,
                                  const std::vector<int>& alias);

/// Returns the largest number of images below `batch` whose `bytes(images)` is at most `room`; 0 if not even one image
/// fits. `bytes` must grow with the number of images.
int largest_batch(size_t room, int batch, const std::function<size_t(int)>& bytes);

/// Memory that is allocated once, aligned to 64 bytes and zeroed.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : data_(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{kBufferAlignment}))), bytes_(bytes) {
    std::memset(data_.get(), 0, bytes);
  }
  uint8_t* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const { ::operator delete (data, std::align_val_t{kBufferAlignment}); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

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
