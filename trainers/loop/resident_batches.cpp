// SPDX-License-Identifier: Apache-2.0
// Batches made on the GPU from images that stay there.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/training/batches.h"
#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/data/transform.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

constexpr size_t kUpload = 64 << 20;  // bytes sent to the GPU at once

/// Page-locked memory that is being copied to the GPU. It is our own: LibTorch's cannot be freed when the GPU has
/// failed.
struct Staged {
  PinnedBuffer memory;
  Event copied;
};

/// Keeps all training images as bytes on the GPU; a batch is one launch of the augmentation kernel there.
class ResidentBatches : public Batches {
 public:
  ResidentBatches(const RunData& data, const BatchesOptions& options, const GpuBatch& batch)
      : data_(data),
        options_(options),
        size_(*data.train_set->common_size()),
        tables_(batch.tables),
        batch_(batch.memory),
        images_(upload()) {
    const size_t bytes = options.own_size() * sizeof(kernels::AugmentedImage);
    chosen_ = at::empty({static_cast<int64_t>(bytes)}, images_.options());
    for (Staged& staged : staged_) staged.memory = PinnedBuffer(bytes);
    const Transform& t = data.train_transform;
    shape_ = {options.own_size(), size_.height, size_.width, t.height, t.width, t.channels, t.cutout, {}};
    if (t.cutout > 0) std::copy(t.fill.begin(), t.fill.end(), shape_.fill);
  }

  void begin(const Epoch& epoch, long first_batch) override {
    epoch_ = epoch;
    order_.resize(data_.train.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    shuffle_for(epoch, order_);
    place_ = static_cast<size_t>(first_batch) * options_.batch_size;
  }

  const Labelled* next() override {
    const size_t shared = static_cast<size_t>(options_.batch_size), count = static_cast<size_t>(options_.own_size());
    if (place_ + shared > order_.size()) return nullptr;
    Staged& staged = staged_[place_ / shared % staged_.size()];
    staged.copied.wait();  // its copy of 16 batches ago
    auto* chosen = reinterpret_cast<kernels::AugmentedImage*>(staged.memory.data());
    const size_t first = place_ + static_cast<size_t>(options_.rank) * count;
    for (size_t i = 0; i < count; ++i) chosen[i] = draw(first + i);
    place_ += shared;
    const CudaStream stream = current_stream(options_.device);
    copy_to_device(chosen_.mutable_data_ptr(), chosen, staged.memory.bytes(), stream);
    staged.copied.record(stream);
    kernels::cuda_augment(
        shape_,
        {images_.const_data_ptr<uint8_t>(), reinterpret_cast<const kernels::AugmentedImage*>(chosen_.const_data_ptr()),
         tables_.const_data_ptr<float>(), batch_.images.mutable_data_ptr<float>(),
         batch_.labels.mutable_data_ptr<int64_t>()},
        stream);
    return &batch_;
  }

 private:
  kernels::AugmentedImage draw(size_t place) const {
    const size_t index = order_[place];
    Random random = random_for(epoch_, place);
    const Augmentation drawn = draw_augmentation(size_, data_.train_transform, random);
    const auto small = [](int value) { return static_cast<int16_t>(value); };
    return {.index = static_cast<int64_t>(index),
            .label = data_.train_set->label(data_.train[index]),
            .top = small(drawn.part.top),
            .left = small(drawn.part.left),
            .cut_y = small(drawn.cut.top),
            .cut_x = small(drawn.cut.left),
            .flip = drawn.flip};
  }

  at::Tensor upload() const {
    const size_t bytes = static_cast<size_t>(size_.height) * size_.width * data_.train_transform.channels;
    const size_t count = data_.train.size(), at_once = std::max<size_t>(1, kUpload / bytes);
    at::Tensor images =
        at::empty({static_cast<int64_t>(count * bytes)}, at::TensorOptions(options_.device).dtype(at::kByte));
    const CudaStream stream = current_stream(options_.device);
    const PinnedBuffer part(std::min(count, at_once) * bytes);  // making one takes as long as filling it
    for (size_t first = 0; first < count; first += at_once) {
      const size_t end = std::min(count, first + at_once);
      share_among_threads(static_cast<int64_t>(end - first), 1, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) read(first + i, bytes, part.data() + i * bytes);
      });
      copy_to_device(images.mutable_data_ptr<uint8_t>() + first * bytes, part.data(), (end - first) * bytes, stream);
      Event copied;
      copied.record(stream);
      copied.wait();
    }
    return images;
  }

  void read(size_t i, size_t bytes, uint8_t* out) const {
    const size_t index = data_.train[i];
    const Image image = data_.train_set->read(index);
    if (ImageSize{image.height, image.width} != size_ || image.pixels.size() != bytes)
      throw data_error(data_.train_set->describe(index) + ": its size is not that of the others");
    std::memcpy(out, image.pixels.data(), bytes);
  }

  const RunData& data_;
  const BatchesOptions options_;
  const ImageSize size_;
  const at::Tensor tables_;
  const Labelled batch_;
  const at::Tensor images_;  // uint8, all images of data.train in its order
  at::Tensor chosen_;        // AugmentedImage [batch] as bytes
  std::array<Staged, 16> staged_;
  kernels::AugmentShape shape_;
  Epoch epoch_;
  std::vector<size_t> order_;  // of the epoch: indices into data.train
  size_t place_ = 0;           // where the next batch of all ranks begins in order_
};

}  // namespace

std::unique_ptr<Batches> make_resident_batches(const RunData& data, const BatchesOptions& options,
                                               const GpuBatch& batch) {
  return std::make_unique<ResidentBatches>(data, options, batch);
}

}  // namespace octet
