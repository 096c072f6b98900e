// SPDX-License-Identifier: Apache-2.0
// Depthwise 5x5 convolution of stride 1 or 2. A thread computes four channels of a tile of output pixels, one column of
// input at a time: the words of eight rows, with four channels each, are transposed into two words per channel, whose
// bytes are the rows. For a row of output both are shifted to where its window begins. Two dp4a then multiply a whole
// column of the window; of the second word only the first byte counts.
#include <algorithm>
#include <iterator>

#include "kernels/conv/cuda/depthwise.cuh"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

constexpr int kWindow = 5;
constexpr int kInRows = 8;  // rows in two words

/// The output columns of one thread; it computes as many output rows as eight input rows give.
constexpr int kColumns[] = {7, 4};
constexpr int rows_of(int stride) { return stride == 1 ? 4 : 2; }

/// Transposes words with four channels of one row into words with four rows of one channel.
__device__ __forceinline__ void transpose(const uint32_t (&row)[4], uint32_t (&codes)[kQuad]) {
  const uint32_t low01 = __byte_perm(row[0], row[1], 0x5140), high01 = __byte_perm(row[0], row[1], 0x7362);
  const uint32_t low23 = __byte_perm(row[2], row[3], 0x5140), high23 = __byte_perm(row[2], row[3], 0x7362);
  codes[0] = __byte_perm(low01, low23, 0x5410), codes[1] = __byte_perm(low01, low23, 0x7632);
  codes[2] = __byte_perm(high01, high23, 0x5410), codes[3] = __byte_perm(high01, high23, 0x7632);
}

template <int kStride, int kColumns, bool kSigned>
__global__ void __launch_bounds__(kDepthwiseThreads) depthwise_5x5_kernel(DepthwiseArgs a) {
  constexpr int kRows = rows_of(kStride), kReadRows = (kRows - 1) * kStride + kWindow;
  constexpr int kInColumns = (kColumns - 1) * kStride + kWindow;
  static_assert(kReadRows <= kInRows);
  const DepthwisePlace place(a, kRows, kColumns);
  if (place.none) return;
  const Conv2dShape& g = a.g;
  const int left = place.ox * kStride - g.pad_w, top = place.oy * kStride - g.pad_h;
  const QuadConstants constants(a, place.quad);
  uint32_t weight[kWindow][2][kQuad];
#pragma unroll
  for (int i = 0; i < 2 * kWindow; ++i) to_array(__ldg(a.weight + i * a.quads + place.quad), weight[i / 2][i % 2]);
  const uint8_t* x = wait_for_previous_kernel(a.x);

  x += ((static_cast<ptrdiff_t>(place.image) * g.in_h + top) * g.in_w + left) * g.in_stride + place.quad * kQuad;
  const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(g.in_w) * g.in_stride;
  uint8_t* y = a.y + ((static_cast<ptrdiff_t>(place.image) * g.out_h + place.oy) * g.out_w + place.ox) * g.out_stride +
               place.quad * kQuad;
  const int out_row_bytes = g.out_w * g.out_stride;

  int32_t acc[kColumns][kRows][kQuad];
#pragma unroll
  for (int column = 0; column < kInColumns; ++column, x += g.in_stride) {
    const bool inside = left + column >= 0 && left + column < g.in_w;
    uint32_t words[kInRows], low[kQuad], high[kQuad];
#pragma unroll
    for (int r = 0; r < kInRows; ++r) {
      words[r] = a.padding;
      if (r >= kReadRows) continue;  // its weight is 0
      if (inside && top + r >= 0 && top + r < g.in_h) {
        words[r] = __ldg(reinterpret_cast<const uint32_t*>(x + r * row_bytes));
      }
    }
    transpose({words[0], words[1], words[2], words[3]}, low);
    transpose({words[4], words[5], words[6], words[7]}, high);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const uint32_t first = __funnelshift_r(low[i], high[i], 8 * r * kStride), last = high[i] >> (8 * r * kStride);
#pragma unroll
        for (int s = 0; s < kWindow; ++s) {
          if (column < s || (column - s) % kStride != 0 || (column - s) / kStride >= kColumns) continue;
          int32_t& sum = acc[(column - s) / kStride][r][i];
          sum = dot4<kSigned>(first, weight[s][0][i], s == 0 ? constants.init[i] : sum);
          sum = dot4<kSigned>(last, weight[s][1][i], sum);
        }
      }
    }
    if (column < kWindow - 1 || (column - kWindow + 1) % kStride != 0) continue;
    const int done = (column - kWindow + 1) / kStride;  // this output column is complete
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t out = constants.finish(acc[done][r], a);
      if (place.oy + r < g.out_h && place.ox + done < g.out_w) {
        *reinterpret_cast<uint32_t*>(y + r * out_row_bytes) = out;
      }
    }
    y += g.out_stride;
  }
}

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  if (!depthwise_fits(problem, kWindow)) return;
  const Conv2dShape& g = problem.shape;
  for (int variant = 0; variant < static_cast<int>(std::size(kColumns)); ++variant) {
    found.push_back({.variant = variant,
                     .name = "dp4a_depthwise_5x5_" + std::to_string(rows_of(g.stride_h)) + "x" +
                             std::to_string(kColumns[variant])});
  }
  std::stable_sort(found.begin(), found.end(), [&](const CudaConv2d& a, const CudaConv2d& b) {
    return round_up(g.out_w, kColumns[a.variant]) < round_up(g.out_w, kColumns[b.variant]);
  });
}

template <int kVariant>
DepthwiseKernel kernel_of(int stride, bool is_signed) {
  constexpr int kWidth = kColumns[kVariant];
  if (stride == 1) return is_signed ? depthwise_5x5_kernel<1, kWidth, true> : depthwise_5x5_kernel<1, kWidth, false>;
  return is_signed ? depthwise_5x5_kernel<2, kWidth, true> : depthwise_5x5_kernel<2, kWidth, false>;
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const auto kernel = conv.variant == 0 ? kernel_of<0> : kernel_of<1>;
  launch_depthwise(kernel(g.stride_h, p.x.is_signed), rows_of(g.stride_h), kColumns[conv.variant], g, p, data, stream);
}

}  // namespace

const CudaConvFamily& cuda_depthwise_5x5_family() {
  static constexpr CudaConvFamily family{choices, depthwise_pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
