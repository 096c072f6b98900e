// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/core/launch.cuh"
#include "kernels/operators/pixels.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTable = 256;       // entries for one channel
constexpr int kRgbPixels = 4;     // pixels of a thread of quantize_rgb_kernel()
constexpr int kRgbBlocks = 1024;  // enough for any GPU; each block reads the tables once

/// Quantizes any number of channels, a thread for each pixel. Like quantize_rgb_kernel() it begins a network and is
/// launched with <<<>>>, so the next kernel may begin at once (kernels/core/launch.cuh).
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

/// Quantizes three channels to a stride of four, the usual first layer: a thread reads four pixels as three words and
/// writes them as four.
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

namespace {

/// A thread looks up one value.
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

namespace {

/// A thread makes one pixel of the batch.
__global__ void augment_kernel(AugmentShape shape, AugmentBatch batch) {
  const long pixel = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  const long area = static_cast<long>(shape.height) * shape.width;
  if (pixel >= shape.batch * area) return;
  const int n = static_cast<int>(pixel / area), place = static_cast<int>(pixel % area);
  const int y = place / shape.width, x = place % shape.width;
  const AugmentedPicture picture = batch.chosen[n];
  if (place == 0) batch.labels[n] = picture.label;

  const int row = y + picture.top, column = (picture.flip ? shape.width - 1 - x : x) + picture.left;
  const bool inside = row >= 0 && row < shape.picture_height && column >= 0 && column < shape.picture_width;
  const bool cut =
      y >= picture.cut_y && y < picture.cut_y + shape.cutout && x >= picture.cut_x && x < picture.cut_x + shape.cutout;
  const uint8_t* in =
      batch.pictures + ((picture.index * shape.picture_height + row) * shape.picture_width + column) * shape.channels;
  float* out = batch.images + pixel * shape.channels;
  for (int c = 0; c < shape.channels; ++c) {
    const uint8_t value = cut ? shape.fill[c] : inside ? in[c] : 0;
    out[c] = __ldg(batch.tables + c * 256 + value);
  }
}

}  // namespace

void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream) {
  const long pixels = static_cast<long>(shape.batch) * shape.height * shape.width;
  augment_kernel<<<blocks_for(pixels, kThreads), kThreads, 0, stream>>>(shape, batch);
  check_launch("augment");
}

}  // namespace octet::kernels
