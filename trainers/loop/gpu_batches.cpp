// SPDX-License-Identifier: Apache-2.0
// Batches made on the GPU from images that stay there; and which kind of batches a GPU gets.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "kernels/operators/pixels.h"
#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/data/transform.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/gpu_pictures.h"

namespace octet {
namespace {

/// Share of the free memory that "auto" may fill with resident images.
constexpr double kMaxShareOfFreeMemory = 0.25;
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
  ResidentBatches(const RunData& data, const BatchesOptions& options)
      : data_(data),
        options_(options),
        size_(*data.train_set->common_size()),
        tables_(normalization_tables(data, options.device)),
        batch_(empty_batch(data, options)),
        images_(upload()) {
    const size_t bytes = options.own_size() * sizeof(kernels::AugmentedPicture);
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
    auto* chosen = reinterpret_cast<kernels::AugmentedPicture*>(staged.memory.data());
    const size_t first = place_ + static_cast<size_t>(options_.rank) * count;
    for (size_t i = 0; i < count; ++i) chosen[i] = draw(first + i);
    place_ += shared;
    const CudaStream stream = current_stream(options_.device);
    copy_to_device(chosen_.mutable_data_ptr(), chosen, staged.memory.bytes(), stream);
    staged.copied.record(stream);
    kernels::cuda_augment(
        shape_,
        {images_.const_data_ptr<uint8_t>(),
         reinterpret_cast<const kernels::AugmentedPicture*>(chosen_.const_data_ptr()), tables_.const_data_ptr<float>(),
         batch_.images.mutable_data_ptr<float>(), batch_.labels.mutable_data_ptr<int64_t>()},
        stream);
    return &batch_;
  }

 private:
  kernels::AugmentedPicture draw(size_t place) const {
    const size_t index = order_[place];
    Random random = random_for(epoch_, place);
    const Augmentation drawn = draw_augmentation(size_, data_.train_transform, random);
    const auto small = [](int value) { return static_cast<int16_t>(value); };
    return {.index = static_cast<int64_t>(index),
            .label = data_.train_set->label(data_.train[index]),
            .top = small(drawn.part.top),
            .left = small(drawn.part.left),
            .cut_y = small(drawn.cut_y),
            .cut_x = small(drawn.cut_x),
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
    if (PictureSize{image.height, image.width} != size_ || image.pixels.size() != bytes)
      throw data_error(data_.train_set->describe(index) + ": its size is not that of the others");
    std::memcpy(out, image.pixels.data(), bytes);
  }

  const RunData& data_;
  const BatchesOptions options_;
  const PictureSize size_;
  const at::Tensor tables_;
  const Labelled batch_;
  const at::Tensor images_;  // uint8, all images of data.train in its order
  at::Tensor chosen_;        // AugmentedPicture [batch] as bytes
  std::array<Staged, 16> staged_;
  kernels::AugmentShape shape_;
  Epoch epoch_;
  std::vector<size_t> order_;  // of the epoch: indices into data.train
  size_t place_ = 0;           // where the next batch of all ranks begins in order_
};

size_t resident_bytes(const RunData& data) {
  const PictureSize size = *data.train_set->common_size();
  return data.train.size() * size.height * size.width * data.train_transform.channels;
}

/// Returns the free memory, including what LibTorch cached in an earlier phase.
size_t free_memory(at::Device device) {
  release_cached(device);
  return gpu_memory(device).free;
}

/// Returns why our kernel cannot augment the training images, or "".
std::string why_not_resident(const RunData& data) {
  const Transform& transform = data.train_transform;
  if (const Labels labels = data.train_set->labels(); labels != Labels::image)
    return fmt::format("data.labels: {} are augmented on the CPU", name_in(kLabels, labels));
  if (transform.fit != Fit::crop || transform.order != ChannelOrder::rgb)
    return "data.fit and data.channel_order: other images than crops in rgb are made on the CPU";
  if (transform.jitter.any() || transform.rand_augment > 0 || transform.random_erasing > 0 || transform.mixup_alpha > 0)
    return "data.color_jitter, rand_augment, random_erasing and mixup_alpha change pixels on the CPU";
  if (transform.random_resized_crop) return "data.random_resized_crop resizes on the CPU";
  if (transform.resize > 0) return "data.resize resizes on the CPU";
  const std::optional<PictureSize> size = data.train_set->common_size();
  if (!size) return "pictures of this data set may differ in size";
  constexpr int kMaxSide = std::numeric_limits<int16_t>::max();
  if (std::max({size->height, size->width, transform.height, transform.width}) + transform.pad > kMaxSide)
    return fmt::format("pictures have more than {} rows or columns", kMaxSide);
  return "";
}

}  // namespace

Batches::Labelled empty_batch(const RunData& data, const BatchesOptions& options) {
  const Transform transform = largest_input(data.train_transform);
  const at::TensorOptions on_gpu(options.device);
  return {at::empty({options.own_size(), transform.channels, transform.height, transform.width},
                    on_gpu.dtype(at::kFloat), at::MemoryFormat::ChannelsLast),
          at::empty(labels_shape(data, options.own_size(), transform), on_gpu.dtype(at::kLong))};
}

at::Tensor normalization_tables(const RunData& data, at::Device device) {
  const int channels = data.train_transform.channels;
  return at::tensor(normalization_tables(channels, data.mean, data.std)).view({channels, 256}).to(device);
}

void require_resident(const RunData& data, at::Device device) {
  const std::string why_not = why_not_resident(data);
  if (!why_not.empty()) throw usage_error(fmt::format("cuda.resident_images: on, but {}; use auto or off", why_not));
  const size_t bytes = resident_bytes(data), free = free_memory(device);
  if (bytes > free)
    throw usage_error(
        fmt::format("cuda.resident_images: on, but the {} training pictures take {:.2f} GB and {:.2f} GB are free; use "
                    "off",
                    data.train.size(), static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9));
}

void require_decoding(const RunData& data) {
  if (const std::string why_not = why_not_decoded(data); !why_not.empty())
    throw usage_error("data.decode: gpu, but " + why_not);
}

std::unique_ptr<Batches> make_gpu_batches(const RunData& data, const BatchesOptions& options) {
  bool resident = options.resident_images == ResidentImages::on;
  if (options.resident_images == ResidentImages::automatic) {
    const double room = kMaxShareOfFreeMemory * static_cast<double>(free_memory(options.device));
    resident = why_not_resident(data).empty() && static_cast<double>(resident_bytes(data)) <= room;
  }
  if (resident) return std::make_unique<ResidentBatches>(data, options);
  return make_uploaded_batches(data, options);
}

}  // namespace octet
