// SPDX-License-Identifier: Apache-2.0
// Depthwise 3x3 convolution of stride 1 or 2. A thread computes four channels of a tile of output pixels, one column of
// input at a time: the words of four rows, with four channels each, are transposed into one word per channel, whose
// bytes are the rows. One dp4a then multiplies a whole column of the window, and with stride 1 the four rows of a word
// serve two rows of output.
#include <algorithm>
#include <iterator>

#include "kernels/conv/cuda/depthwise.cuh"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

constexpr int kWindow = 3;

/// The output pixels of one thread.
struct DepthwiseTile {
  int sets;     ///< sets of four input rows, two apart; a set gives two rows of output with stride 1, one with stride 2
  int columns;  ///< 7 divides the widths in networks for 224x224 images, 4 those in networks for 32x32

  constexpr int rows(int stride) const { return stride == 1 ? 2 * sets : sets; }
};

constexpr DepthwiseTile kTiles[] = {{2, 7}, {2, 4}, {1, 7}, {1, 4}, {1, 2}, {1, 1}};

/// Transposes words with four channels of one row into words with four rows of one channel: codes[set][channel].
template <int kSets>
__device__ void transpose(const uint32_t (&row)[2 * kSets + 2], uint32_t (&codes)[kSets][kQuad]) {
  uint32_t low[kSets + 1], high[kSets + 1];  // channels 0, 1 and 2, 3 of two rows each
#pragma unroll
  for (int i = 0; i <= kSets; ++i) {
    low[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x5140);
    high[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x7362);
  }
#pragma unroll
  for (int i = 0; i < kSets; ++i) {
    codes[i][0] = __byte_perm(low[i], low[i + 1], 0x5410), codes[i][1] = __byte_perm(low[i], low[i + 1], 0x7632);
    codes[i][2] = __byte_perm(high[i], high[i + 1], 0x5410), codes[i][3] = __byte_perm(high[i], high[i + 1], 0x7632);
  }
}

template <int kStride, int kTileIndex, bool kSigned>
__global__ void __launch_bounds__(kDepthwiseThreads) depthwise_3x3_kernel(DepthwiseArgs a) {
  constexpr int kSets = kTiles[kTileIndex].sets, kColumns = kTiles[kTileIndex].columns;
  constexpr int kRows = kTiles[kTileIndex].rows(kStride), kRowsOfSet = kRows / kSets;
  constexpr int kInRows = (kRows - 1) * kStride + kWindow, kInColumns = (kColumns - 1) * kStride + kWindow;
  const DepthwisePlace place(a, kRows, kColumns);
  if (place.none) return;
  const Conv2dShape& g = a.g;
  const unsigned quad = place.quad;
  const int ox = place.ox, oy = place.oy;
  const int left = ox * kStride - g.pad_w, top = oy * kStride - g.pad_h;
  const QuadConstants constants(a, quad);
  uint32_t weight[kWindow][kQuad];
#pragma unroll
  for (int s = 0; s < kWindow; ++s) to_array(__ldg(a.weight + s * a.quads + quad), weight[s]);
  const uint8_t* x = wait_for_previous_kernel(a.x);

  const uint8_t* row[kInRows];  // codes of the next column
  bool row_inside[kInRows];
#pragma unroll
  for (int r = 0; r < kInRows; ++r) {
    row[r] =
        x + ((static_cast<ptrdiff_t>(place.image) * g.in_h + top + r) * g.in_w + left) * g.in_stride + quad * kQuad;
    row_inside[r] = top + r >= 0 && top + r < g.in_h;
  }
  uint8_t* y =
      a.y + ((static_cast<ptrdiff_t>(place.image) * g.out_h + oy) * g.out_w + ox) * g.out_stride + quad * kQuad;
  const int out_row_bytes = g.out_w * g.out_stride;

  int32_t acc[kColumns][kRows][kQuad];
#pragma unroll
  for (int column = 0; column < kInColumns; ++column) {
    const bool inside = left + column >= 0 && left + column < g.in_w;
    uint32_t words[2 * kSets + 2], codes[kSets][kQuad];
#pragma unroll
    for (int r = 0; r < 2 * kSets + 2; ++r) {
      words[r] = a.padding;
      if (r >= kInRows) continue;  // its weight is 0
      if (row_inside[r] && inside) words[r] = __ldg(reinterpret_cast<const uint32_t*>(row[r]));
      row[r] += g.in_stride;
    }
    transpose<kSets>(words, codes);
#pragma unroll
    for (int s = 0; s < kWindow; ++s) {
      if (column < s || (column - s) % kStride != 0 || (column - s) / kStride >= kColumns) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        auto& sum = acc[(column - s) / kStride][r];
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          // The second output row of a set uses codes one input row further down.
          sum[i] = dot4<kSigned>(codes[r / kRowsOfSet][i], weight[s][i] << (8 * (r % kRowsOfSet)),
                                 s == 0 ? constants.init[i] : sum[i]);
        }
      }
    }
    if (column < kWindow - 1 || (column - kWindow + 1) % kStride != 0) continue;
    const int done = (column - kWindow + 1) / kStride;  // this output column is complete
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t out = constants.finish(acc[done][r], a);
      if (oy + r < g.out_h && ox + done < g.out_w) *reinterpret_cast<uint32_t*>(y + r * out_row_bytes) = out;
    }
    y += g.out_stride;
  }
}

/// Returns how many pixels the threads compute, including those outside the image.
long computed(const Conv2dShape& g, const DepthwiseTile& tile) {
  return static_cast<long>(round_up(g.out_h, tile.rows(g.stride_h))) * round_up(g.out_w, tile.columns);
}

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  if (!depthwise_fits(problem, kWindow)) return;
  const Conv2dShape& g = problem.shape;
  for (int variant = 0; variant < static_cast<int>(std::size(kTiles)); ++variant) {
    const DepthwiseTile& tile = kTiles[variant];
    found.push_back(
        {.variant = variant,
         .name = "dp4a_depthwise_3x3_" + std::to_string(tile.rows(g.stride_h)) + "x" + std::to_string(tile.columns)});
  }
  std::stable_sort(found.begin(), found.end(), [&](const CudaConv2d& a, const CudaConv2d& b) {
    return computed(g, kTiles[a.variant]) < computed(g, kTiles[b.variant]);
  });
}

template <int kTileIndex>
DepthwiseKernel kernel_of(int stride, bool is_signed) {
  if (stride == 1)
    return is_signed ? depthwise_3x3_kernel<1, kTileIndex, true> : depthwise_3x3_kernel<1, kTileIndex, false>;
  return is_signed ? depthwise_3x3_kernel<2, kTileIndex, true> : depthwise_3x3_kernel<2, kTileIndex, false>;
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  constexpr DepthwiseKernel (*kKernels[])(int, bool) = {kernel_of<0>, kernel_of<1>, kernel_of<2>,
                                                        kernel_of<3>, kernel_of<4>, kernel_of<5>};
  static_assert(std::size(kKernels) == std::size(kTiles));
  const DepthwiseTile& tile = kTiles[conv.variant];
  launch_depthwise(kKernels[conv.variant](g.stride_h, p.x.is_signed), tile.rows(g.stride_h), tile.columns, g, p, data,
                   stream);
}

}  // namespace

const CudaConvFamily& cuda_depthwise_3x3_family() {
  static constexpr CudaConvFamily family{choices, depthwise_pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
