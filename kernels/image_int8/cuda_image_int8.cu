#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/image_int8/cuda_image_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTable = 256;

/// One thread a pixel: any number of channels.
__global__ void __launch_bounds__(kThreads)
    quantize_image_kernel(ImageShape shape, long pixels, const uint8_t* __restrict__ tables,
                          const uint8_t* __restrict__ image, uint8_t* __restrict__ codes) {
  let_next_kernel_begin();
  const long pixel = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= pixels) return;
  for (int c = 0; c < shape.out_stride; ++c) {
    codes[pixel * shape.out_stride + c] =
        c < shape.channels ? tables[c * kTable + image[pixel * shape.channels + c]] : 0;
  }
}

/// Three channels in four bytes, the usual first layer: a thread turns four pixels, three words, into four words.
constexpr int kRgbPixels = 4;
constexpr int kRgbBlocks = 1024;  // enough for any GPU; each block reads its tables once

__global__ void __launch_bounds__(kThreads)
    quantize_rgb_kernel(long quads, const uint32_t* __restrict__ tables, const uint32_t* __restrict__ image,
                        uint4* __restrict__ codes) {
  __shared__ uint32_t words[3 * kTable / 4];
  let_next_kernel_begin();
  for (int i = threadIdx.x; i < 3 * kTable / 4; i += kThreads) words[i] = tables[i];
  __syncthreads();
  const uint8_t* table = reinterpret_cast<const uint8_t*>(words);
  const auto code = [table](uint32_t word, int byte, int channel) -> uint32_t {
    return table[channel * kTable + (word >> 8 * byte & 0xFF)];
  };
  for (long quad = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x; quad < quads;
       quad += static_cast<long>(gridDim.x) * kThreads) {
    const uint32_t a = image[3 * quad], b = image[3 * quad + 1], c = image[3 * quad + 2];
    codes[quad] = {code(a, 0, 0) | code(a, 1, 1) << 8 | code(a, 2, 2) << 16,
                   code(a, 3, 0) | code(b, 0, 1) << 8 | code(b, 1, 2) << 16,
                   code(b, 2, 0) | code(b, 3, 1) << 8 | code(c, 0, 2) << 16,
                   code(c, 1, 0) | code(c, 2, 1) << 8 | code(c, 3, 2) << 16};
  }
}

bool multiple_of(const void* pointer, unsigned bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream) {
  long done = 0;
  if (shape.channels == 3 && shape.out_stride == 4 && pixels >= kRgbPixels && multiple_of(image, 4) &&
      multiple_of(tables, 4) && multiple_of(codes, 16)) {
    const long quads = pixels / kRgbPixels;
    const unsigned blocks = std::min<unsigned>(blocks_for(quads, kThreads), kRgbBlocks);
    quantize_rgb_kernel<<<blocks, kThreads, 0, stream>>>(quads, reinterpret_cast<const uint32_t*>(tables),
                                                         reinterpret_cast<const uint32_t*>(image),
                                                         reinterpret_cast<uint4*>(codes));
    check_launch("quantize_rgb");
    done = quads * kRgbPixels;
  }
  if (done == pixels) return;
  quantize_image_kernel<<<blocks_for(pixels - done, kThreads), kThreads, 0, stream>>>(
      shape, pixels - done, tables, image + done * shape.channels, codes + done * shape.out_stride);
  check_launch("quantize_image");
}

}  // namespace octet::kernels
