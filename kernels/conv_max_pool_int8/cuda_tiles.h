// The tiles of the kernels of a first layer with its max-pool: shared by packing, choosing and the kernels. Internal to
// this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/conv_max_pool_int8/cuda_conv_max_pool_int8.h"

namespace octet::kernels::conv_max_pool {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;
inline constexpr int kWarpChannels = 32;   // four mma side by side
inline constexpr int kThreadChannels = 8;  // of one pixel
inline constexpr int kTaps = 8;            // words of an mma's operand
inline constexpr int kStripPixels = 7;     // of the pool's output, in a row
inline constexpr int kStride = 2;          // of convolution and pool
inline constexpr int kWordsOfPixel = kStride * kStride;
inline constexpr int kWordsBehind = 10;       // that a strip reads behind those of its pixels
inline constexpr int kWindowRows[] = {3, 7};  // that kernels are made for

/// How a block's warps share a tile, where it has kGroups (1 or 2) groups of kWarpChannels channels.
template <int kGroups>
struct TileShape {
  static constexpr int kStrips = kWarps / kGroups, kPixels = kStrips * kStripPixels;
  static constexpr int kPitch = kPixels * kWordsOfPixel + kWordsBehind;  ///< words of a row of the picture
  static constexpr int kFetched = kPixels * kWordsOfPixel + kTaps;       ///< the rest is read for nothing that counts
};

/// The index of the smallest kernel that holds the window, or -1.
inline int rows_index(const Conv2dShape& g) {
  for (int i = 0; i < 2; ++i) {
    if (g.kernel_h <= kWindowRows[i]) return i;
  }
  return -1;
}

/// What follows from the layers alone, and from how many rows of the pool's output a tile has.
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

}  // namespace octet::kernels::conv_max_pool
