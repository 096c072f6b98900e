#include "trainers/batches/gpu_batches.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/quantize.h"
#include "src/common/error.h"
#include "trainers/gpu.h"

namespace octet {
namespace {

/// Of the free memory, for resident pictures that nobody asked for.
constexpr double kMostOfFreeMemory = 0.25;

size_t resident_bytes(const RunData& data) {
  const PictureSize size = *data.train_set->common_size();
  return data.train.size() * size.height * size.width * data.train_transform.channels;
}

/// What LibTorch keeps of an earlier phase is free, too.
size_t free_memory(at::Device device) {
  release_cached(device);
  return gpu_memory(device).free;
}

}  // namespace

std::string why_not_resident(const RunData& data) {
  const Transform& transform = data.train_transform;
  if (data.train_set->labels() == Labels::pixels) return "masks (data.labels: pixels) are augmented on the CPU";
  if (transform.random_resized_crop) return "data.random_resized_crop resizes on the CPU";
  if (transform.resize > 0) return "data.resize resizes on the CPU";
  const std::optional<PictureSize> size = data.train_set->common_size();
  if (!size) return "pictures of this data set may differ in size";
  constexpr int kMost = std::numeric_limits<int16_t>::max();
  if (std::max({size->height, size->width, transform.height, transform.width}) + transform.pad > kMost)
    return fmt::format("pictures have more than {} rows or columns", kMost);
  return "";
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

std::unique_ptr<Batches> make_gpu_batches(const RunData& data, const BatchesOptions& options) {
  if (options.resident_images == "off") return uploaded_batches(data, options);
  if (options.resident_images == "on") return resident_batches(data, options);
  const double room = kMostOfFreeMemory * static_cast<double>(free_memory(options.device));
  const bool resident = why_not_resident(data).empty() && static_cast<double>(resident_bytes(data)) <= room;
  return resident ? resident_batches(data, options) : uploaded_batches(data, options);
}

Batches::Labelled empty_batch(const RunData& data, const BatchesOptions& options) {
  const Transform& transform = data.train_transform;
  const at::TensorOptions on_gpu(options.device);
  return {at::empty({options.own_size(), transform.channels, transform.height, transform.width},
                    on_gpu.dtype(at::kFloat), at::MemoryFormat::ChannelsLast),
          at::empty(labels_shape(data, options.own_size()), on_gpu.dtype(at::kLong))};
}

at::Tensor normalization_tables(const RunData& data, at::Device device) {
  const int channels = data.train_transform.channels;
  at::Tensor tables = at::empty({channels, 256}, at::kFloat);
  float* values = tables.mutable_data_ptr<float>();
  for (int c = 0; c < channels; ++c)
    for (int p = 0; p < 256; ++p)
      values[c * 256 + p] = normalize_pixel(static_cast<uint8_t>(p), data.mean.at(c), data.std.at(c));
  return tables.to(device);
}

}  // namespace octet
