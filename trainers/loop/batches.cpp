// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/batches.h"

#include <ATen/ops/from_blob.h>

#include <optional>
#include <string>

#include "src/base/error.h"
#include "src/train/model/model.h"
#include "trainers/loop/input_tensors.h"
#if OCTET_CUDA
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "src/data/transform.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_images.h"
#endif

namespace octet {
namespace {

/// Batches that the loader makes and normalizes on the CPU.
class LoadedBatches : public Batches {
 public:
  LoadedBatches(const RunData& data, const BatchesOptions& options) : data_(data), options_(options) {}

  void begin(const Epoch& epoch, long first_batch) override {
    loader_.emplace(*data_.train_set, data_.train, data_.train_transform, options_.loader(data_, epoch, first_batch));
  }

  const Labelled* next() override {
    if (!loader_->next(batch_)) return nullptr;
    const Shape shape{data_.train_transform.channels, batch_.input.height, batch_.input.width};
    labelled_.images = images_to_tensor({batch_.images.data(), batch_.size, shape}, data_.mean, data_.std);
    std::vector<int64_t> labels = batch_.labels_shape;
    labels.insert(labels.begin(), batch_.size);
    labelled_.labels = at::from_blob(batch_.labels.data(), labels, at::TensorOptions(at::kLong));
    return &labelled_;
  }

  double waited_seconds() const override { return loader_->waited_seconds(); }

 private:
  const RunData& data_;
  const BatchesOptions options_;
  std::optional<Loader> loader_;
  Batch batch_;
  Labelled labelled_;
};

}  // namespace

std::vector<int64_t> labels_shape(const RunData& data, int images, const Transform& transform) {
  std::vector<int64_t> shape = label_writer(*data.train_set, transform)->shape();
  shape.insert(shape.begin(), images);
  return shape;
}

Transform largest_input(Transform transform) {
  const ImageSize largest = input_sizes(transform).back();
  transform.height = largest.height;
  transform.width = largest.width;
  return transform;
}

#if OCTET_CUDA
namespace {

size_t resident_bytes(const RunData& data) {
  const ImageSize size = *data.train_set->common_size();
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
  const std::optional<ImageSize> size = data.train_set->common_size();
  if (!size) return "images of this data set may differ in size";
  constexpr int kMaxSide = std::numeric_limits<int16_t>::max();
  if (std::max({size->height, size->width, transform.height, transform.width}) + transform.pad > kMaxSide)
    return fmt::format("images have more than {} rows or columns", kMaxSide);
  return "";
}

/// Throws Error(usage) with the reason and the cure when the training images cannot stay on the GPU.
void require_resident(const RunData& data, at::Device device) {
  const std::string why_not = why_not_resident(data);
  if (!why_not.empty()) throw usage_error(fmt::format("cuda.resident_images: on, but {}; use auto or off", why_not));
  const size_t bytes = resident_bytes(data), free = free_memory(device);
  if (bytes > free)
    throw usage_error(
        fmt::format("cuda.resident_images: on, but the {} training images take {:.2f} GB and {:.2f} GB are free; use "
                    "off",
                    data.train.size(), static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9));
}

/// Returns whether images are to stay on the GPU: with "auto" where they are possible there and few.
bool stay_on_gpu(const RunData& data, const BatchesOptions& options) {
  constexpr double kMaxShareOfFreeMemory = 0.25;
  if (options.resident_images != ResidentImages::automatic) return options.resident_images == ResidentImages::on;
  const double room = kMaxShareOfFreeMemory * static_cast<double>(free_memory(options.device));
  return why_not_resident(data).empty() && static_cast<double>(resident_bytes(data)) <= room;
}

GpuBatch gpu_batch(const RunData& data, const BatchesOptions& options) {
  const Transform transform = largest_input(data.train_transform);
  const int channels = transform.channels;
  const at::TensorOptions on_gpu(options.device);
  return {.tables =
              at::tensor(normalization_tables(channels, data.mean, data.std)).view({channels, 256}).to(options.device),
          .memory = {at::empty({options.own_size(), channels, transform.height, transform.width},
                               on_gpu.dtype(at::kFloat), at::MemoryFormat::ChannelsLast),
                     at::empty(labels_shape(data, options.own_size(), transform), on_gpu.dtype(at::kLong))}};
}

}  // namespace
#endif

void require_batches(const RunData& data, const BatchesOptions& options) {
  if (options.device.is_cpu() && data.decode == Decoding::gpu)
    throw usage_error("data.decode: gpu, but this run trains on the CPU; use cpu (--set data.decode=cpu)");
#if OCTET_CUDA
  const std::string why_not = data.decode == Decoding::gpu ? why_not_decoded(data) : "";
  if (!why_not.empty()) throw usage_error("data.decode: gpu, but " + why_not);
  if (options.device.is_cuda() && options.resident_images == ResidentImages::on) require_resident(data, options.device);
#endif
}

std::unique_ptr<Batches> make_batches(const RunData& data, const BatchesOptions& options) {
  require_batches(data, options);
#if OCTET_CUDA
  if (options.device.is_cuda()) {
    const auto make = stay_on_gpu(data, options) ? make_resident_batches : make_uploaded_batches;
    return make(data, options, gpu_batch(data, options));
  }
#endif
  return std::make_unique<LoadedBatches>(data, options);
}

at::Tensor network_input(const Batch& batch, const RunData& data, at::Device device) {
  if (const auto* ready = dynamic_cast<const InputTensors*>(data.train_set.get()))
    return ready->values(batch.indices, device);
  const Shape shape{data.evaluation_transform.channels, batch.input.height, batch.input.width};
  return images_to_tensor({batch.images.data(), batch.size, shape}, data.mean, data.std, device);
}

void for_inputs(const RunData& data, const Dataset& images, const std::vector<size_t>& indices, int batch_size,
                at::Device device, const std::function<void(const at::Tensor& x)>& take) {
  Loader loader(images, indices, data.evaluation_transform, {.batch_size = batch_size, .workers = data.workers});
  for (Batch batch; loader.next(batch);) take(network_input(batch, data, device));
}

std::vector<size_t> evenly_spaced(const std::vector<size_t>& indices, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(indices[i * indices.size() / count]);
  return chosen;
}

}  // namespace octet
