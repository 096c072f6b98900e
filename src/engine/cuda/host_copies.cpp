// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/host_copies.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/base/error.h"

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

BatchQueue::BatchQueue(size_t image_bytes, const std::vector<size_t>& output_bytes)
    : host_(image_bytes),
      read_(*std::max_element(output_bytes.begin(), output_bytes.end())),
      arriving_(image_bytes, "images that wait for their turn") {
  for (Batch& batch : batches_) {
    for (const size_t bytes : output_bytes) batch.outputs.emplace_back(bytes, "outputs that wait to be collected");
  }
}

BatchQueue::~BatchQueue() {
  try {
    copies_.wait("");
    while (count_ > 0) pop("");
  } catch (const Error&) {  // whoever submitted them has been told, or does not ask any more
  }
}

void BatchQueue::upload(const uint8_t* images, size_t bytes, uint8_t* to, const Stream& compute) {
  taken_.hold(copies_.get());
  host_.upload(arriving_.data(), images, bytes, copies_);
  arrived_.record(copies_.get());
  arrived_.hold(compute.get());
  copy_on_device(to, arriving_.data(), bytes, compute.get());
  taken_.record(compute.get());
}

void BatchQueue::keep(size_t output, const uint8_t* from, size_t bytes, const Stream& compute) {
  copy_on_device(next().outputs[output].data(), from, bytes, compute.get());
}

void BatchQueue::push(int images, const Stream& compute) {
  next().images = images;
  next().done.record(compute.get());
  ++count_;
}

const BatchQueue::Batch& BatchQueue::pop(const char* what) {
  const Batch& oldest = batches_[first_];
  oldest.done.wait(what);
  first_ = (first_ + 1) % batches_.size();
  --count_;
  return oldest;
}

void BatchQueue::read(void* host, const DeviceBuffer& output, size_t bytes, const char* what) {
  read_.download(host, output.data(), bytes, reads_, what);
}

}  // namespace octet
