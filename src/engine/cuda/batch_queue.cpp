#include "src/engine/cuda/batch_queue.h"

#include "src/common/error.h"

namespace octet {

BatchQueue::BatchQueue(size_t image_bytes, const std::vector<size_t>& output_bytes)
    : host_(image_bytes), arriving_(image_bytes, "images that wait for their turn") {
  for (Batch& batch : batches_) {
    for (const size_t bytes : output_bytes) batch.outputs.emplace_back(bytes);
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

void BatchQueue::download(size_t output, const uint8_t* from, size_t bytes, const Stream& compute) {
  copy_to_host(next().outputs[output].data(), from, bytes, compute.get());
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

}  // namespace octet
