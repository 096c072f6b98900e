// Copies between a caller's memory and the GPU. Page-locked memory is copied as it is; any other goes through
// page-locked buffers in pieces, so that the processor copies one piece while the one before it travels.
#pragma once

#include <array>
#include <cstddef>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet {

class HostCopies {
 public:
  HostCopies() = default;
  explicit HostCopies(size_t largest);  ///< bytes of the largest copy: smaller pieces for a small network

  /// Ordinary memory has been read when this returns; page-locked memory stays in use until the stream got there.
  void upload(void* device, const void* host, size_t bytes, const Stream& stream);
  /// Waits: afterwards `host` holds the bytes, and everything before on the stream is done. `what` names that in
  /// errors.
  void download(void* host, const void* device, size_t bytes, const Stream& stream, const char* what);

 private:
  struct Slot {
    PinnedBuffer memory;
    Event done;  ///< its last copy
  };
  size_t piece_ = 0;
  std::array<Slot, 2> slots_;
};

}  // namespace octet
