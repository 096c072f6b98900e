// SPDX-License-Identifier: Apache-2.0
// The kernel of expand_reduce.cu, and the layout of its shared memory and packed data. Include it in .cu files only.
//
// A cluster of blocks computes a tile of 16 or 32 pixels. Each block computes 128 channels of the wide tensor and sends
// their codes to all other blocks; then each block has the whole tile and computes 32 channels of the narrow tensor.
// The copies of all weights begin before the kernel waits for the previous one.
#pragma once

#include <cstddef>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/groups/groups.h"

namespace octet::kernels::expand_reduce {

inline constexpr int kWide = 128, kNarrow = 32;  ///< channels of the two tensors that a block computes
inline constexpr int kWarps = 8, kThreads = 32 * kWarps;

/// The layout of a block's shared memory, in bytes. x comes first. Rows are swizzled by mma_swizzle().
struct Layout {
  int x_row, wide_row;  ///< bytes of a pixel of x and of the wide tensor; also of an output channel's weights
  int expand, reduce;   ///< where the weights of the two convolutions begin
  int wide, end;        ///< where the codes of the wide tensor begin and end

  constexpr Layout(int cluster, int pixels)
      : x_row(kNarrow * cluster), wide_row(kWide * cluster), expand(pixels * x_row), reduce(0), wide(0), end(0) {
    const int sums =
        kWarps * pixels * kNarrow * 4;  // bytes of the sums of all warps, which overwrite x and the first weights
    const int first = expand + kWide * x_row;
    reduce = first > sums ? first : sums;
    wide = reduce + kNarrow * wide_row;
    end = wide + pixels * wide_row;
  }
};

/// The layouts of a block's weights: a warp has 16 of the kWide channels, and all of the kNarrow channels.
inline constexpr MmaTile kExpandTile{.block_n = kWide, .warps_n = kWarps},
    kReduceTile{.block_n = kNarrow, .warps_n = 1};

/// Returns the bytes of packed data of a convolution.
inline size_t packed_bytes(int channels, int in_c) {
  return cuda_constants_bytes(channels) + static_cast<size_t>(channels) * in_c;
}

/// Returns where the second convolution's packed data begins.
inline size_t reduce_offset(const Conv2dShape& expand) {
  return (packed_bytes(expand.out_c, expand.in_c) + 255) / 256 * 256;
}

struct ExpandReduceArgs {
  ConvOutput expand, reduce;
  const uint8_t *expand_weight, *reduce_weight;  ///< [cluster, kWide, x_row], [cluster, kNarrow, wide_row]
  const uint8_t* x;
  int in_stride;
};

/// Begins to copy a block's weights.
__device__ __forceinline__ void copy_weights(uint32_t shared, const uint8_t* from, int bytes) {
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) copy_async(shared + at, from + at);
}

/// Adds to sums the products of all pixels with 16 channels for every two columns of fragments, over kSteps times 32
/// bytes from `first_step` on. Pixels and weights are rows of kRow bytes.
template <bool kSigned, int kRow, int kSteps, class Sums>
__device__ __forceinline__ void multiply(Sums& sums, uint32_t pixels, uint32_t weights, int first_step) {
  constexpr int kPairs = Sums::kN / 2;
  const int lane = threadIdx.x % 32;
  const uint32_t x = pixels + (lane / 8 % 2 * 8 + lane % 8) * kRow, w = weights + (lane / 16 * 8 + lane % 8) * kRow;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = (first_step + step) * 2;
    const uint32_t x_chunk = mma_swizzle(kRow, lane % 8, chunk + lane / 16) * 16;
    const uint32_t w_chunk = mma_swizzle(kRow, lane % 8, chunk + lane / 8 % 2) * 16;
    uint32_t a[Sums::kM][4], b[kPairs][4];
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) load_matrices(a[m], x + x_chunk + m * 16 * kRow);
#pragma unroll
    for (int n = 0; n < kPairs; ++n) load_matrices(b[n], w + w_chunk + n * 16 * kRow);
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; ++n) {
        multiply_add<kSigned>(sums.value[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

/// Grid: (blocks of a cluster, tiles of pixels).
template <int kCluster, int kPixels, bool kXSigned, bool kWideSigned>
__global__ void __launch_bounds__(kThreads) expand_reduce_kernel(const __grid_constant__ ExpandReduceArgs p) {
  constexpr Layout kLayout(kCluster, kPixels);
  constexpr int kXRow = kLayout.x_row, kWideRow = kLayout.wide_row, kM = kPixels / 16;
  extern __shared__ __align__(128) uint8_t shared_memory[];
  const uint32_t shared = shared_address(shared_memory);
  const int rank = blockIdx.x, first_pixel = blockIdx.y * kPixels;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  arrive_at_cluster();
  copy_weights(shared + kLayout.expand, p.expand_weight + static_cast<ptrdiff_t>(rank) * kWide * kXRow, kWide * kXRow);
  copy_weights(shared + kLayout.reduce, p.reduce_weight + static_cast<ptrdiff_t>(rank) * kNarrow * kWideRow,
               kNarrow * kWideRow);
  const int wide_channel = rank * kWide + warp * 16 + lane % 4 * 4, wide_pixel = first_pixel + lane / 4;
  Fragments<kM, 2> sums;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int2 start = *reinterpret_cast<const int2*>(p.expand.constants.init + wide_channel + n * 2);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      sums.value[m][n][0] = sums.value[m][n][2] = start.x;
      sums.value[m][n][1] = sums.value[m][n][3] = start.y;
    }
  }
  OutputOperands<Fragments<kM, 2>> operands;
  operands.load_constants(p.expand, wide_channel);
  // A thread of the first 4 kM warps finishes one word of the narrow tensor, from these rows and columns of all warps'
  // sums.
  const int m = warp / 4, pair = warp / 2 % 2, upper = warp % 2;
  const int narrow_channel = rank * kNarrow + lane % 4 * 8 + pair * 4;
  const int4 start = *reinterpret_cast<const int4*>(p.reduce.constants.init + narrow_channel);
  const float4 multiplier = *reinterpret_cast<const float4*>(p.reduce.constants.multiplier + narrow_channel);
  const float4 bias = *reinterpret_cast<const float4*>(p.reduce.constants.bias + narrow_channel);

  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < kPixels * kXRow / 16; i += kThreads) {
    const int row = i / (kXRow / 16), chunk = i % (kXRow / 16);
    const int pixel = min(first_pixel + row, p.expand.pixels - 1);  // repetitions of the last pixel are not stored
    copy_async(shared + row * kXRow + mma_swizzle(kXRow, row, chunk) * 16,
               p.x + static_cast<ptrdiff_t>(pixel) * p.in_stride + chunk * 16);
  }
  copy_async_commit();
  const bool added = p.expand.residual != nullptr;
  if (added) operands.load_residual(p.expand, wide_pixel, wide_channel);
  copy_async_wait<0>();
  __syncthreads();
  multiply<kXSigned, kXRow, kXRow / 32>(sums, shared, shared + kLayout.expand + warp * 16 * kXRow, 0);

  const auto wide_at = [&](int row, int chunk) {
    return kLayout.wide + row * kWideRow + mma_swizzle(kWideRow, row, chunk) * 16;
  };
  const ResidualCodes residual(p.expand.epilogue);
#pragma unroll
  for (int row = 0; row < 2 * kM; ++row) {
    const int32_t(&left)[4] = sums.value[row / 2][0], (&right)[4] = sums.value[row / 2][1];
    const int32_t acc[4] = {left[row % 2 * 2], left[row % 2 * 2 + 1], right[row % 2 * 2], right[row % 2 * 2 + 1]};
    uint32_t codes[1] = {
        added ? finish_codes<true>(p.expand, residual, acc, operands.multiplier[0], operands.bias[0],
                                   operands.residual[row].word[0])
              : finish_codes<false>(p.expand, residual, acc, operands.multiplier[0], operands.bias[0], 0)};
    p.expand.rounding.finish(codes);
    uint8_t* to = shared_memory + wide_at(lane / 4 + row * 8, rank * (kWide / 16) + warp) + lane % 4 * 4;
    *reinterpret_cast<uint32_t*>(to) = codes[0];
  }
  __syncthreads();
  wait_for_cluster();  // all blocks have begun
  static_assert(kPixels * kWide <= kThreads * 16, "a thread sends 16 codes");
  const int row = threadIdx.x / (kWide / 16), chunk = rank * (kWide / 16) + threadIdx.x % (kWide / 16);
  const bool sends = row < kPixels;
  int4 codes;
  if (sends) {
    const int at = wide_at(row, chunk);
    codes = *reinterpret_cast<const int4*>(shared_memory + at);
#pragma unroll
    for (int other = 1; other < kCluster; ++other) {
      store_to_cluster(address_in_block(shared + at, (rank + other) % kCluster), codes);
    }
  }
  arrive_at_cluster_with_writes();
  if (sends && first_pixel + row < p.expand.pixels) {
    uint8_t* to = static_cast<uint8_t*>(p.expand.y) + static_cast<ptrdiff_t>(first_pixel + row) * p.expand.out_stride;
    *reinterpret_cast<int4*>(to + chunk * 16) = codes;
  }
  wait_for_cluster();

  Fragments<kM, 4> parts = {};
  multiply<kWideSigned, kWideRow, kWideRow / 32 / kWarps>(parts, shared + kLayout.wide, shared + kLayout.reduce,
                                                          warp * (kWideRow / 32 / kWarps));
  int4* all = reinterpret_cast<int4*>(shared_memory);  // [warp][kM][4][32]; no block reads what was there any more
#pragma unroll
  for (int i = 0; i < 4 * kM; ++i) {
    const int32_t(&v)[4] = parts.value[i / 4][i % 4];
    all[(warp * 4 * kM + i) * 32 + lane] = make_int4(v[0], v[1], v[2], v[3]);
  }
  __syncthreads();
  if (m >= kM) return;
  int32_t acc[4] = {start.x, start.y, start.z, start.w};
#pragma unroll
  for (int part = 0; part < kWarps; ++part) {
    const int2* of_part = reinterpret_cast<const int2*>(all + ((part * kM + m) * 4 + pair * 2) * 32 + lane) + upper;
    const int2 left = of_part[0], right = of_part[64];
    acc[0] += left.x, acc[1] += left.y, acc[2] += right.x, acc[3] += right.y;
  }
  uint32_t narrow[1] = {finish_codes<false>(p.reduce, ResidualCodes(p.reduce.epilogue), acc, multiplier, bias, 0)};
  p.reduce.rounding.finish(narrow);
  const int pixel = first_pixel + m * 16 + upper * 8 + lane / 4;
  if (pixel < p.reduce.pixels) {
    uint8_t* to = static_cast<uint8_t*>(p.reduce.y) + static_cast<ptrdiff_t>(pixel) * p.reduce.out_stride;
    *reinterpret_cast<uint32_t*>(to + narrow_channel) = narrow[0];
  }
}

}  // namespace octet::kernels::expand_reduce
