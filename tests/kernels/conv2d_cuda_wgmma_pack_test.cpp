// SPDX-License-Identifier: Apache-2.0
// Packed data of the wgmma family is complete: the convolution is computed from the packed bytes alone, on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/conv/cuda/wgmma/wgmma.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

/// Returns the row of padded images (WgmmaPlan) that holds a pixel; row 0 is the first row of the first tile.
int64_t padded_row(const WgmmaPlan& plan, const Conv2dShape& g, int image, int iy, int ix) {
  return (static_cast<int64_t>(image) * plan.padded_h + iy + g.pad_h) * plan.padded_w + ix + g.pad_w;
}

/// Returns a weight of a sparse step as wgmma.sp finds it: 0 unless its column is one of the two kept of four.
int8_t sparse_weight(const WgmmaTile& tile, const uint8_t* step, int row, int column) {
  const int pieces = tile.block_k / 64, piece = column / 64, in_column = column % 64;
  // By the PTX ISA thread t of a warp describes row t / 4 or, if t is odd, the row 8 further on, and columns from 32 on
  // if t % 4 >= 2.
  const int thread = row / 16 * 32 + row % 8 * 4 + (in_column >= 32 ? 2 : 0) + (row % 16 >= 8 ? 1 : 0);
  uint32_t word;
  std::memcpy(&word, step + pieces * 2048 + (thread * pieces + piece) * sizeof(word), sizeof(word));
  const uint32_t kept = word >> (in_column % 32 / 4 * 4) & 15, first = kept & 3, second = kept >> 2;
  EXPECT_LT(first, second) << "not allowed: " << kept;
  for (int i = 0; i < 2; ++i) {
    const int byte = in_column / 4 * 2 + i;
    if (in_column % 4 == static_cast<int>(i == 0 ? first : second))
      return static_cast<int8_t>(step[piece * 2048 + row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16]);
  }
  return 0;
}

/// Checks that every four of every step, even in the padding, name two increasing positions: otherwise wgmma.sp is
/// undefined.
void expect_two_kept_everywhere(const WgmmaTile& tile, const uint8_t* weight, size_t bytes) {
  const size_t step_bytes = tile.step_bytes(), codes = static_cast<size_t>(tile.block_n) * tile.block_k / 2;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % step_bytes < codes) continue;
    for (const int kept : {weight[i] & 15, weight[i] >> 4}) ASSERT_LT(kept & 3, kept >> 2) << "byte " << i;
  }
}

/// Computes what the kernels compute, from packed data alone and in the way they find it: zeros outside the image, and
/// start values of sums that correct for these. If shifted, each tap is read from later rows of padded images.
std::vector<uint8_t> run_packed(const ConvCase& c, int index) {
  const Conv2dShape& g = c.shape;
  const Conv2dParams& p = c.params;
  const WgmmaTile& tile = kWgmmaTiles[index];
  const WgmmaPlan plan(tile, g, c.images, p.has_residual);
  const WgmmaPacked at(tile, g);
  std::map<int64_t, const uint8_t*> rows;  // that are no padding
  for (int i = 0; tile.shifted() && i < c.images * g.in_h * g.in_w; ++i) {
    const int64_t row = padded_row(plan, g, i / g.in_w / g.in_h, i / g.in_w % g.in_h, i % g.in_w);
    rows[row] = &c.x[static_cast<size_t>(i) * g.in_stride];
  }
  const std::vector<uint8_t> packed = wgmma_pack(wgmma_choice(index), g, p, c.weights);
  if (tile.sparse) expect_two_kept_everywhere(tile, &packed[at.weight], at.bytes - at.weight);
  const auto weight = [&](int k, int tap, int channel) {
    const int row = wgmma_weight_row(k % tile.block_n), in_step = channel % tile.block_k;
    const size_t step =
        (static_cast<size_t>(k / tile.block_n) * plan.chunks + channel / tile.block_k) * plan.taps + tap;
    const uint8_t* bytes = &packed[at.weight + step * tile.step_bytes()];
    if (tile.sparse) return sparse_weight(tile, bytes, row, in_step);
    return static_cast<int8_t>(
        bytes[row * tile.block_k + mma_swizzle(tile.block_k, row, in_step / 16) * 16 + in_step % 16]);
  };
  const int pixels = c.images * g.out_h * g.out_w;
  std::vector<uint8_t> y(static_cast<size_t>(pixels) * g.out_stride, kCanary);
  for (int pixel = 0; pixel < pixels; ++pixel) {
    const int ox = pixel % g.out_w, oy = pixel / g.out_w % g.out_h, image = pixel / g.out_w / g.out_h;
    const int border =
        packed[at.row_class + oy] * static_cast<int>(at.columns.taps.size()) + packed[at.column_class + ox];
    for (int k = 0; k < g.out_c; ++k) {
      int32_t acc;
      std::memcpy(&acc, &packed[at.starts + (static_cast<size_t>(border) * at.channels + k) * sizeof(acc)],
                  sizeof(acc));
      for (int tap = 0; tap < plan.taps; ++tap) {
        const int iy = oy * g.stride_h - g.pad_h + tap / g.kernel_w * g.dilation_h;
        const int ix = ox * g.stride_w - g.pad_w + tap % g.kernel_w * g.dilation_w;
        const uint8_t* x = nullptr;
        if (tile.shifted()) {
          const int64_t first = (static_cast<int64_t>(image) * plan.padded_h + oy) * plan.padded_w + ox;
          const auto row =
              rows.find(first + tap / g.kernel_w * g.dilation_h * plan.padded_w + tap % g.kernel_w * g.dilation_w);
          if (row != rows.end()) x = row->second;
        } else if (iy >= 0 && iy < g.in_h && ix >= 0 && ix < g.in_w) {
          x = &c.x[((static_cast<size_t>(image) * g.in_h + iy) * g.in_w + ix) * g.in_stride];
        }
        if (x == nullptr) continue;
        for (int i = 0; i < g.in_c; ++i) {
          acc += weight(k, tap, i) * (p.x.is_signed ? static_cast<int8_t>(x[i]) : static_cast<int>(x[i]));
        }
      }
      float t = rescale(acc, c.weights.multiplier[k], c.weights.bias[k]);
      if (p.has_residual) {
        const uint8_t code = c.residual[static_cast<size_t>(pixel) * g.residual_stride + k];
        const int32_t r = p.residual.is_signed ? static_cast<int8_t>(code) : static_cast<int>(code);
        t = std::fma(static_cast<float>(r - p.residual.zero_point), p.residual_multiplier, t);
      }
      y[static_cast<size_t>(pixel) * g.out_stride + k] =
          static_cast<uint8_t>(round_code(t, p.y.zero_point, p.y.clamp_min, p.y.clamp_max));
    }
  }
  return y;
}

// Shifted tiles, even where the rows of a window are the padding of the next row or image.
TEST(Conv2dCudaWgmma, PackedDataHoldsTheConvolution) {
  std::map<std::pair<WgmmaMode, bool>, int> run;
  for (unsigned seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    ConvCase c = random_ungrouped_case(random);
    c.lookup.reset();  // nothing of it is packed
    if (c.params.y.float_output || c.shape.kernel_h * c.shape.kernel_w > 25) continue;
    const int tile = static_cast<int>(seed % kWgmmaTiles.size());
    if (!wgmma_fits(kWgmmaTiles[tile], c.shape, c.images)) continue;
    ++run[{kWgmmaTiles[tile].mode, kWgmmaTiles[tile].sparse}];
    if (kWgmmaTiles[tile].sparse) keep_two_of_four(c, random);
    expect_exact(c, wgmma_choice(tile).name, run_packed(c, tile), run_reference(c));
  }
  EXPECT_EQ(run.size(), 4u);
  for (const auto& [kind, times] : run) EXPECT_GE(times, 5) << static_cast<int>(kind.first) << " " << kind.second;
}

}  // namespace
}  // namespace octet::kernels::testing
