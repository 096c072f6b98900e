#include "kernels/cuda_launch.h"
#include "kernels/image_int8/cuda_image_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread a pixel.
__global__ void quantize_image_kernel(ImageShape shape, long pixels, const uint8_t* __restrict__ tables,
                                      const uint8_t* __restrict__ image, uint8_t* __restrict__ codes) {
  const long pixel = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= pixels) return;
  for (int c = 0; c < shape.out_stride; ++c) {
    codes[pixel * shape.out_stride + c] = c < shape.channels ? tables[c * 256 + image[pixel * shape.channels + c]] : 0;
  }
}

}  // namespace

void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream) {
  quantize_image_kernel<<<blocks_for(pixels, kThreads), kThreads, 0, stream>>>(shape, pixels, tables, image, codes);
  check_launch("quantize_image");
}

}  // namespace octet::kernels
