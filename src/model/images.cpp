#include "src/model/images.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>

#include "kernels/image_float/image_float.h"
#include "kernels/quantize.h"
#include "src/model/device.h"
#include "src/model/parallel.h"

#if OCTET_CUDA
#include "kernels/image_float/cuda_image_float.h"
#endif

namespace octet {
namespace {

constexpr int64_t kGrain = 16384;  // pixels a thread takes at least

at::Tensor empty_images(const Pictures& pictures, at::Device device) {
  const Shape& shape = pictures.shape;
  return at::empty({pictures.count, shape.c, shape.h, shape.w}, at::TensorOptions(at::kFloat).device(device),
                   at::MemoryFormat::ChannelsLast);
}

at::Tensor look_up_on_host(const Pictures& pictures, const std::vector<float>& tables) {
  at::Tensor x = empty_images(pictures, at::kCPU);
  const int channels = pictures.shape.c;
  float* out = x.mutable_data_ptr<float>();
  share_among_threads(x.numel() / channels, kGrain, [&](int64_t begin, int64_t end) {
    kernels::look_up_image({channels, tables.data()}, end - begin, pictures.pixels + begin * channels,
                           out + begin * channels);
  });
  return x;
}

#if OCTET_CUDA
/// Tables and pixels go up in one copy, out of page-locked memory. The host waits for it: LibTorch's allocator would
/// keep the memory until a copy under way is done, but ends the process in ~Tensor when the GPU has failed meanwhile.
at::Tensor look_up_on_gpu(const Pictures& pictures, const std::vector<float>& tables, at::Device device) {
  const c10::DeviceGuard guard(device);
  at::Tensor x = empty_images(pictures, device);
  const size_t table_bytes = tables.size() * sizeof(float);
  const int64_t pixel_bytes = x.numel();
  const at::Tensor staged =
      at::empty({static_cast<int64_t>(table_bytes) + pixel_bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  uint8_t* bytes = staged.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, tables.data(), table_bytes);
  constexpr int64_t kCopyGrain = 1 << 20;
  share_among_threads(pixel_bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(bytes + table_bytes + begin, pictures.pixels + begin, end - begin);
  });
  const at::Tensor there = staged.to(x.device(), /*non_blocking=*/false);
  const uint8_t* data = there.const_data_ptr<uint8_t>();
  kernels::cuda_look_up_image({pictures.shape.c, reinterpret_cast<const float*>(data)}, pixel_bytes / pictures.shape.c,
                              data + table_bytes, x.mutable_data_ptr<float>(), current_stream(x.device()));
  return x;
}
#else
at::Tensor look_up_on_gpu(const Pictures&, const std::vector<float>&, at::Device device) { throw no_cuda(device); }
#endif

}  // namespace

at::Tensor look_up_pixels(const Pictures& pictures, const std::vector<float>& tables, at::Device device) {
  return device.is_cpu() ? look_up_on_host(pictures, tables) : look_up_on_gpu(pictures, tables, device);
}

at::Tensor images_to_tensor(const Pictures& pictures, const std::vector<float>& mean, const std::vector<float>& std,
                            at::Device device) {
  const int channels = pictures.shape.c;
  std::vector<float> tables(static_cast<size_t>(channels) * 256);
  for (int c = 0; c < channels; ++c)
    for (int p = 0; p < 256; ++p) tables[c * 256 + p] = normalize_pixel(static_cast<uint8_t>(p), mean.at(c), std.at(c));
  return look_up_pixels(pictures, tables, device);
}

at::Tensor images_to_tensor(const uint8_t* images, int batch, const Shape& shape, const std::vector<float>& mean,
                            const std::vector<float>& std) {
  return images_to_tensor({images, batch, shape}, mean, std, at::kCPU);
}

}  // namespace octet
