// SPDX-License-Identifier: Apache-2.0
// Copies between a caller's memory and the GPU, and the queue of submitted batches, whose images travel to the GPU
// while the batch before is computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/engine.h"

namespace octet {

/// Copies page-locked memory directly. Other memory goes through two page-locked buffers in pieces, so that the
/// processor copies one piece while the piece before travels.
class HostCopies {
 public:
  HostCopies() = default;
  explicit HostCopies(size_t largest);  ///< bytes of the largest copy, which limits the pieces' size

  /// Copies to the device. Ordinary memory has been read when this returns; page-locked memory stays in use until the
  /// stream has done the copy.
  void upload(void* device, const void* host, size_t bytes, const Stream& stream);
  /// Copies to the host and waits for the copy and all earlier work on the stream, which `what` names in errors.
  void download(void* host, const void* device, size_t bytes, const Stream& stream, const char* what);

 private:
  struct Slot {
    PinnedBuffer memory;
    Event done;  ///< after the last copy from or to `memory`
  };
  size_t piece_ = 0;
  std::array<Slot, 2> slots_;
};

/// The batches of Program::submit(). For each batch: upload(), the network's launches, keep() of every output, push();
/// and when it is collected pop(), read() of every output. Outputs wait on the GPU for their way to the host, since the
/// memory of whoever collects them is only known then: a copy of them there costs little, one on the host would cost
/// more than the network where outputs are large.
class BatchQueue {
 public:
  struct Batch {
    int images = 0;
    std::vector<DeviceBuffer> outputs;  ///< with lanes between channels and stride
    Event done;
  };

  /// The arguments are the bytes of the largest batch.
  BatchQueue(size_t image_bytes, const std::vector<size_t>& output_bytes);
  /// Waits for the batches under way, which use the caller's memory and these buffers.
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  size_t size() const { return count_; }
  int first_images() const { return batches_[first_].images; }  ///< images of the oldest batch
  /// Makes the images available at `to` for later work on `compute`, without delaying earlier work there.
  void upload(const uint8_t* images, size_t bytes, uint8_t* to, const Stream& compute);
  /// Copies an output aside after all earlier work on `compute`.
  void keep(size_t output, const uint8_t* from, size_t bytes, const Stream& compute);
  /// Completes the batch. At most Program::kMostSubmitted batches are in the queue.
  void push(int images, const Stream& compute);
  /// Waits for the oldest batch, which `what` names in errors, and removes it. Its outputs stay valid until keep() of a
  /// batch that is submitted later.
  const Batch& pop(const char* what);
  /// Copies an output of a batch that pop() returned to the host and waits for it, while later work goes on.
  void read(void* host, const DeviceBuffer& output, size_t bytes, const char* what);

 private:
  Batch& next() { return batches_[(first_ + count_) % batches_.size()]; }

  Stream copies_, reads_;
  HostCopies host_, read_;  ///< of images, of outputs
  DeviceBuffer arriving_;   ///< images of the next batch
  Event arrived_, taken_;
  std::array<Batch, Program::kMostSubmitted> batches_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace octet
