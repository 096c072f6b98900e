// How the kernel's work, shared memory and packed data are laid out. Internal to this folder.
#pragma once

#include <cstddef>

#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/mma/tiles.h"

namespace octet::kernels::expand_reduce {

inline constexpr int kWide = 128, kNarrow = 32;  ///< channels of a block
inline constexpr int kWarps = 8, kThreads = 32 * kWarps;

/// What a block has, in bytes of shared memory. Rows of bytes are swizzled as mma_swizzle() says.
struct Layout {
  int x_row, wide_row;       ///< bytes of a pixel, and of an output channel's weights: of x, of the wide tensor
  int expand, reduce, wide;  ///< where the weights of both and the wide tensor's codes begin; before them lies x
  int end;

  constexpr Layout(int cluster, int pixels)
      : x_row(kNarrow * cluster), wide_row(kWide * cluster), expand(pixels * x_row), reduce(0), wide(0), end(0) {
    const int sums = kWarps * pixels * kNarrow * 4;  // of the warps; where x and the first weights were
    const int first = expand + kWide * x_row;
    reduce = first > sums ? first : sums;
    wide = reduce + kNarrow * wide_row;
    end = wide + pixels * wide_row;
  }
};

/// How the weights of a block lie: kWide channels, a warp has 16 of them; kNarrow, each warp has all.
inline constexpr MmaTile kExpandTile{.block_n = kWide, .warps_n = kWarps},
    kReduceTile{.block_n = kNarrow, .warps_n = 1};

/// Bytes of packed data for `channels` output channels of `in_c` input channels.
inline size_t packed_bytes(int channels, int in_c) {
  return cuda_constants_bytes(channels) + static_cast<size_t>(channels) * in_c;
}

/// Where the second convolution's packed data begins.
inline size_t reduce_offset(const Conv2dShape& expand) {
  return (packed_bytes(expand.out_c, expand.in_c) + 255) / 256 * 256;
}

}  // namespace octet::kernels::expand_reduce
