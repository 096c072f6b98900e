#include "src/engine/cuda/host_copies.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace octet {
namespace {

constexpr size_t kLargestPiece = size_t{2} << 20;

}  // namespace

HostCopies::HostCopies(size_t largest) : piece_(std::min(largest, kLargestPiece)) {
  for (Slot& slot : slots_) slot.memory = PinnedBuffer(piece_);
}

void HostCopies::upload(void* device, const void* host, size_t bytes, const Stream& stream) {
  if (is_page_locked(host)) {
    copy_to_device(device, host, bytes, stream.get());
    return;
  }
  for (size_t first = 0, piece = 0; first < bytes; first += piece_, ++piece) {
    Slot& slot = slots_[piece % slots_.size()];
    const size_t count = std::min(piece_, bytes - first);
    slot.done.wait("copying images to the GPU");
    std::memcpy(slot.memory.data(), static_cast<const uint8_t*>(host) + first, count);
    copy_to_device(static_cast<uint8_t*>(device) + first, slot.memory.data(), count, stream.get());
    slot.done.record(stream.get());
  }
}

void HostCopies::download(void* host, const void* device, size_t bytes, const Stream& stream, const char* what) {
  if (is_page_locked(host)) {
    copy_to_host(host, device, bytes, stream.get());
    stream.wait(what);
    return;
  }
  const auto start = [&](size_t first) {
    Slot& slot = slots_[first / piece_ % slots_.size()];
    copy_to_host(slot.memory.data(), static_cast<const uint8_t*>(device) + first, std::min(piece_, bytes - first),
                 stream.get());
    slot.done.record(stream.get());
  };
  start(0);
  for (size_t first = 0; first < bytes; first += piece_) {
    if (first + piece_ < bytes) start(first + piece_);
    Slot& slot = slots_[first / piece_ % slots_.size()];
    slot.done.wait(what);
    std::memcpy(static_cast<uint8_t*>(host) + first, slot.memory.data(), std::min(piece_, bytes - first));
  }
}

}  // namespace octet
