// Memory for what a run gives, sized by the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "src/engine/engine.h"

namespace octet {

class OutputBuffers {
 public:
  OutputBuffers(const Int8Graph& graph, int batch) {
    for (const int node : graph.outputs) buffers_.emplace_back(graph.nodes[node].image_bytes() * batch);
    for (std::vector<uint8_t>& buffer : buffers_) pointers_.push_back(buffer.data());
  }
  OutputBuffers(OutputBuffers&&) = default;
  OutputBuffers& operator=(OutputBuffers&&) = default;

  OutputMemory memory() const { return OutputMemory(pointers_); }
  /// Of an output, in the graph's order: codes or float32 [batch, H, W, C].
  const std::vector<uint8_t>& operator[](size_t output) const { return buffers_[output]; }
  const std::vector<std::vector<uint8_t>>& all() const { return buffers_; }

 private:
  std::vector<std::vector<uint8_t>> buffers_;
  std::vector<void*> pointers_;  ///< to them
};

}  // namespace octet
