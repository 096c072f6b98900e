// Batches of Program::submit(): the images of one travel to the GPU while the one before it is computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/host_copies.h"
#include "src/engine/engine.h"

namespace octet {

class BatchQueue {
 public:
  struct Batch {
    int images = 0;
    std::vector<PinnedBuffer> outputs;  ///< as on the device, with lanes between channels and stride
    Event done;
  };

  /// Bytes of the largest batch.
  BatchQueue(size_t image_bytes, const std::vector<size_t>& output_bytes);
  /// Waits for what is under way: caller's memory and these buffers are in use until then.
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  size_t size() const { return count_; }
  int first_images() const { return batches_[first_].images; }  ///< of the oldest batch
  /// What is put on `compute` after this finds them at `to`; what is on it already is not held up.
  void upload(const uint8_t* images, size_t bytes, uint8_t* to, const Stream& compute);
  /// Then the outputs: each behind what `compute` does before.
  void download(size_t output, const uint8_t* from, size_t bytes, const Stream& compute);
  /// The batch is whole. At most Program::kMostSubmitted are.
  void push(int images, const Stream& compute);
  /// The oldest, once it is done; its memory is used again by the push after the next. `what` names that in errors.
  const Batch& pop(const char* what);

 private:
  Batch& next() { return batches_[(first_ + count_) % batches_.size()]; }

  Stream copies_;
  HostCopies host_;
  DeviceBuffer arriving_;  ///< images of the batch whose turn is next
  Event arrived_, taken_;
  std::array<Batch, Program::kMostSubmitted> batches_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace octet
