// SPDX-License-Identifier: Apache-2.0
// The tiles of the kernel in conv_max_pool.cu, the sums of a thread and the constants of its channels. Include it in
// .cu files only.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>

#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/groups/groups.h"

namespace octet::kernels::conv_max_pool {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;
inline constexpr int kWarpChannels = 32;                 // channels of a warp: four mma
inline constexpr int kThreadChannels = 8;                // channels of one pixel that a thread computes
inline constexpr int kTaps = 8;                          // words of an mma's operand
inline constexpr int kStripPixels = 7;                   // neighbouring pixels of the pool's output in a strip
inline constexpr int kStride = 2;                        // stride of convolution and pool
inline constexpr int kWordsOfPixel = kStride * kStride;  // step in the image from one output pixel to the next
inline constexpr int kWordsBehind = 10;                  // words that a strip reads behind those of its pixels
inline constexpr int kWindowRows[] = {3, 7};             // window heights that kernels are compiled for

/// How the warps of a block share a tile, if the block computes kGroups (1 or 2) groups of kWarpChannels channels.
template <int kGroups>
struct TileShape {
  static constexpr int kStrips = kWarps / kGroups, kPixels = kStrips * kStripPixels;
  static constexpr int kPitch = kPixels * kWordsOfPixel + kWordsBehind;  ///< words of a row in shared memory
  static constexpr int kFetched =
      kPixels * kWordsOfPixel + kTaps;  ///< words of a row that are copied; the rest meets weights 0
};

/// Returns the index in kWindowRows of the smallest kernel that holds the window, or -1.
inline int rows_index(const Conv2dShape& g) {
  for (int i = 0; i < 2; ++i) {
    if (g.kernel_h <= kWindowRows[i]) return i;
  }
  return -1;
}

/// The sizes of a tile that has up to tile_rows rows of the pool's output.
struct TileGrid {
  int window_rows, groups, rows, pixels, in_rows, pitch;

  TileGrid(const ConvMaxPool& layers, int tile_rows)
      : window_rows(kWindowRows[rows_index(layers.conv)]),
        groups(layers.conv.out_c > kWarpChannels ? 2 : 1),
        rows(std::min(tile_rows, layers.pool.out_h)),
        pixels(groups == 1 ? TileShape<1>::kPixels : TileShape<2>::kPixels),
        in_rows(rows * kWordsOfPixel + window_rows),
        pitch(groups == 1 ? TileShape<1>::kPitch : TileShape<2>::kPitch) {}
  size_t shared_bytes() const { return 2 * sizeof(uint32_t) * in_rows * pitch; }
};

/// The constants of a thread's channels, from k on.
struct ThreadConstants {
  float multiplier[kThreadChannels], bias[kThreadChannels];
  int32_t init[kThreadChannels];

  __device__ ThreadConstants(const CudaChannelConstants& from, int k) {
#pragma unroll
    for (int i = 0; i < kThreadChannels; ++i) {
      multiplier[i] = from.multiplier[k + i], bias[i] = from.bias[k + i], init[i] = from.init[k + i];
    }
  }
};

inline constexpr int kLowest = INT_MIN;  // a sum that is never the maximum

/// A thread's sums of one row of the convolution: [four mma][two channels of the left column, two of the right].
struct RowSums {
  int32_t value[4][4];

  __device__ __forceinline__ void fill(int32_t with) {
#pragma unroll
    for (int i = 0; i < 16; ++i) value[i / 4][i % 4] = with;
  }
  /// Excludes a row outside the image. The empty instruction makes this a branch rather than a selection per value.
  __device__ __forceinline__ void leave_out(bool outside) {
    if (outside) {
      asm volatile("");
      fill(kLowest);
    }
  }
  /// Excludes columns outside the image.
  __device__ __forceinline__ void leave_out(bool left, bool right) {
    asm volatile("");
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (left) value[i / 2][i % 2] = kLowest;
      if (right) value[i / 2][2 + i % 2] = kLowest;
    }
  }
  __device__ __forceinline__ void keep_larger(const RowSums& other) {
#pragma unroll
    for (int i = 0; i < 16; ++i) value[i / 4][i % 4] = max(value[i / 4][i % 4], other.value[i / 4][i % 4]);
  }
  template <bool kSigned>
  __device__ __forceinline__ void multiply_add_row(const uint32_t (&codes)[4], const uint4 (&weight)[2]) {
    multiply_add<kSigned>(value[0], codes, weight[0].x, weight[0].y);
    multiply_add<kSigned>(value[1], codes, weight[0].z, weight[0].w);
    multiply_add<kSigned>(value[2], codes, weight[1].x, weight[1].y);
    multiply_add<kSigned>(value[3], codes, weight[1].z, weight[1].w);
  }
};

/// Loads a thread's words of one row of the image: two of its left pixel's window and the same two of its right
/// pixel's.
__device__ __forceinline__ void load_row(const uint32_t* from, uint32_t (&codes)[4]) {
  codes[0] = from[0], codes[1] = from[kStride], codes[2] = from[4], codes[3] = from[4 + kStride];
}

}  // namespace octet::kernels::conv_max_pool
