#include "kernels/cuda_launch.h"
#include "kernels/image_float/cuda_image_float.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread a value.
__global__ void look_up_image_kernel(PixelTables tables, long count, const uint8_t* __restrict__ image,
                                     float* __restrict__ out) {
  const long i = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) out[i] = __ldg(tables.values + i % tables.channels * 256 + image[i]);
}

}  // namespace

void cuda_look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out, CudaStream stream) {
  const long count = pixels * tables.channels;
  look_up_image_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(tables, count, image, out);
  check_launch("look_up_image");
}

}  // namespace octet::kernels
