// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/batches.h"

#include "kernels/core/launch.cuh"
#include "kernels/training/placed_pixel.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 8;  // of the batch's image that a thread makes, of one column
constexpr int kHead = ResampleAxis::kHead;
constexpr int kHalf = 1 << (kResampleBits - 1);

__device__ int to_byte(int sum) { return min(max(sum >> kResampleBits, 0), 255); }

/// A thread makes kRows pixels below each other: it walks down the rows of the decoded image that they are made of,
/// makes its column's value of each row once, and adds that to the sums of all its pixels.
template <int kChannels>
__global__ void __launch_bounds__(kThreads) resample_kernel(ResampleShape shape, ResampleBatch batch) {
  const int n = static_cast<int>(blockIdx.z), top = static_cast<int>(blockIdx.y) * kRows;
  const int x = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (x >= shape.width) return;
  const ResampledImage& image = batch.plans[n];
  const int column_stride = kHead + image.columns.taps, row_stride = kHead + image.rows.taps;
  const int32_t* column = batch.filters + image.columns.offset + static_cast<int64_t>(x) * column_stride;
  const int32_t* rows = batch.filters + image.rows.offset + static_cast<int64_t>(top) * row_stride;
  const int height = min(kRows, shape.height - top);
  const int left = column[0], across = column[1];

  int begin = INT32_MAX, end = 0;  // the image's rows that any of the pixels is made of
  for (int r = 0; r < height; ++r) {
    const int first = rows[r * row_stride], count = rows[r * row_stride + 1];
    if (count == 0) continue;
    begin = min(begin, first);
    end = max(end, first + count);
  }
  if (across == 0) end = 0;

  int sums[kRows][kChannels];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) sums[r][c] = kHalf;

  for (int y = begin; y < end; ++y) {
    const uint8_t* in = image.pixels + y * image.stride + static_cast<int64_t>(left) * kChannels;
    int value[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) value[c] = kHalf;
    for (int k = 0; k < across; ++k) {
      const int weight = column[kHead + k];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) value[c] += weight * in[k * kChannels + c];
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) value[c] = to_byte(value[c]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= height) break;
      const int k = y - rows[r * row_stride];
      if (k < 0 || k >= rows[r * row_stride + 1]) continue;
      const int weight = rows[r * row_stride + kHead + k];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sums[r][c] += weight * value[c];
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= height) break;
    const int y = top + r;
    bool filled = false;
    for (const auto& part : image.filled)
      filled = filled || (y >= part[0] && y < part[2] && x >= part[1] && x < part[3]);
    const bool inside = across > 0 && rows[r * row_stride + 1] > 0;
    uint8_t* out = batch.images + ((static_cast<int64_t>(n) * shape.height + y) * shape.width + x) * kChannels;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int value = filled ? shape.fill[c] : inside ? to_byte(sums[r][c]) : shape.outside;
      out[shape.reversed ? kChannels - 1 - c : c] = static_cast<uint8_t>(value);
    }
  }
}

}  // namespace

void cuda_resample(const ResampleShape& shape, const ResampleBatch& batch, CudaStream stream) {
  const dim3 blocks(blocks_for(shape.width, kThreads), blocks_for(shape.height, kRows),
                    static_cast<unsigned>(shape.batch));
  if (shape.channels == 1)
    resample_kernel<1><<<blocks, kThreads, 0, stream>>>(shape, batch);
  else
    resample_kernel<3><<<blocks, kThreads, 0, stream>>>(shape, batch);
  check_launch("resample");
}

namespace {

/// A thread makes one pixel; a block a part of a row, whose tiles and weights its threads share in the cache.
template <int kChannels>
__global__ void __launch_bounds__(kThreads) place_kernel(PlaceShape shape, PlaceBatch batch) {
  const int x = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (x < shape.width)
    write_placed_pixel<kChannels>(shape, batch, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y), x);
}

}  // namespace

void cuda_place(const PlaceShape& shape, const PlaceBatch& batch, CudaStream stream) {
  const dim3 blocks(blocks_for(shape.width, kThreads), static_cast<unsigned>(shape.height),
                    static_cast<unsigned>(shape.batch));
  if (shape.channels == 1)
    place_kernel<1><<<blocks, kThreads, 0, stream>>>(shape, batch);
  else
    place_kernel<3><<<blocks, kThreads, 0, stream>>>(shape, batch);
  check_launch("place");
}

namespace {

constexpr int kAugmentThreads = 256;

/// A thread makes one pixel of the batch.
__global__ void augment_kernel(AugmentShape shape, AugmentBatch batch) {
  const long pixel = static_cast<long>(blockIdx.x) * kAugmentThreads + threadIdx.x;
  const long area = static_cast<long>(shape.height) * shape.width;
  if (pixel >= shape.batch * area) return;
  const int n = static_cast<int>(pixel / area), place = static_cast<int>(pixel % area);
  const int y = place / shape.width, x = place % shape.width;
  const AugmentedImage image = batch.chosen[n];
  if (place == 0) batch.labels[n] = image.label;

  const int row = y + image.top, column = (image.flip ? shape.width - 1 - x : x) + image.left;
  const bool inside = row >= 0 && row < shape.source_height && column >= 0 && column < shape.source_width;
  const bool cut =
      y >= image.cut_y && y < image.cut_y + shape.cutout && x >= image.cut_x && x < image.cut_x + shape.cutout;
  const uint8_t* in =
      batch.sources + ((image.index * shape.source_height + row) * shape.source_width + column) * shape.channels;
  float* out = batch.images + pixel * shape.channels;
  for (int c = 0; c < shape.channels; ++c) {
    const uint8_t value = cut ? shape.fill[c] : inside ? in[c] : 0;
    out[c] = __ldg(batch.tables + c * 256 + value);
  }
}

}  // namespace

void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream) {
  const long pixels = static_cast<long>(shape.batch) * shape.height * shape.width;
  augment_kernel<<<blocks_for(pixels, kAugmentThreads), kAugmentThreads, 0, stream>>>(shape, batch);
  check_launch("augment");
}

}  // namespace octet::kernels
