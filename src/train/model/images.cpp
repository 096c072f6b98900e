// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/model.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "kernels/core/quantize.h"
#include "kernels/operators/lookup.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

constexpr int64_t kGrain = 16384;  // a thread takes at least so many pixels

at::Tensor empty_images(const Images& images, at::Device device) {
  const Shape& shape = images.shape;
  return at::empty({images.count, shape.c, shape.h, shape.w}, at::TensorOptions(at::kFloat).device(device),
                   at::MemoryFormat::ChannelsLast);
}

at::Tensor look_up_on_host(const Images& images, const std::vector<float>& tables) {
  at::Tensor x = empty_images(images, at::kCPU);
  const int channels = images.shape.c;
  float* out = x.mutable_data_ptr<float>();
  share_among_threads(x.numel() / channels, kGrain, [&](int64_t begin, int64_t end) {
    kernels::look_up_image({channels, tables.data()}, end - begin, images.pixels + begin * channels,
                           out + begin * channels);
  });
  return x;
}

#if OCTET_CUDA
/// Copies tables and pixels to the GPU at once, from page-locked memory, and waits: with a copy still running,
/// LibTorch's allocator ends the process in ~Tensor if the GPU has failed meanwhile.
at::Tensor look_up_on_gpu(const Images& images, const std::vector<float>& tables, at::Device device) {
  const c10::DeviceGuard guard(device);
  at::Tensor x = empty_images(images, device);
  const size_t table_bytes = tables.size() * sizeof(float);
  const int64_t pixel_bytes = x.numel();
  const at::Tensor staged =
      at::empty({static_cast<int64_t>(table_bytes) + pixel_bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  uint8_t* bytes = staged.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, tables.data(), table_bytes);
  constexpr int64_t kCopyGrain = 1 << 20;
  share_among_threads(pixel_bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(bytes + table_bytes + begin, images.pixels + begin, end - begin);
  });
  const at::Tensor there = staged.to(x.device(), /*non_blocking=*/false);
  const uint8_t* data = there.const_data_ptr<uint8_t>();
  kernels::cuda_look_up_image({images.shape.c, reinterpret_cast<const float*>(data)}, pixel_bytes / images.shape.c,
                              data + table_bytes, x.mutable_data_ptr<float>(), current_stream(x.device()));
  return x;
}
#else
at::Tensor look_up_on_gpu(const Images&, const std::vector<float>&, at::Device device) { throw no_cuda(device); }
#endif

}  // namespace

at::Tensor look_up_pixels(const Images& images, const std::vector<float>& tables, at::Device device) {
  return device.is_cpu() ? look_up_on_host(images, tables) : look_up_on_gpu(images, tables, device);
}

std::vector<float> normalization_tables(int channels, const std::vector<float>& mean, const std::vector<float>& std) {
  std::vector<float> tables(static_cast<size_t>(channels) * 256);
  for (int c = 0; c < channels; ++c)
    for (int p = 0; p < 256; ++p) tables[c * 256 + p] = normalize_pixel(static_cast<uint8_t>(p), mean.at(c), std.at(c));
  return tables;
}

at::Tensor images_to_tensor(const Images& images, const std::vector<float>& mean, const std::vector<float>& std,
                            at::Device device) {
  return look_up_pixels(images, normalization_tables(images.shape.c, mean, std), device);
}

}  // namespace octet
