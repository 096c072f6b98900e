// SPDX-License-Identifier: Apache-2.0
// The matrix product of processors with USMMLA (ARMv8.6: Cortex-A510, A710, X2 and later, Neoverse N2, V1; Apple M2).
//
// USMMLA multiplies 2 pixels x 8 unsigned codes by 8 x 2 channels' signed weights and adds the 2 x 2 sums, so codes are
// used as they are. A tile is 4 pixels x 16 channels: 2 x 8 accumulators of 2 x 2. 16 codes of two pixels are loaded
// and interleaved by halves: 16 k of a tile are 4 loads of codes, 4 zips, 16 loads of weights and 32 USMMLA.
#include "kernels/conv/cpu/neon_tiles.h"

namespace octet::kernels {
namespace {

constexpr int kTileRows = 4;

/// Adds the products of eight neighbouring k. x: a pair of pixels each; acc: pairs of pixels, pairs of channels.
template <int kPairs, int kColumns>
OCTET_ALWAYS_INLINE void add_products(const int8_t* w, const uint8x16_t (&x)[kPairs],
                                      int32x4_t (&acc)[kPairs][kColumns]) {
#pragma GCC unroll 8
  for (int n = 0; n < kColumns; ++n) {
    const int8x16_t weight = vld1q_s8(w + 16 * n);
#pragma GCC unroll 2
    for (int m = 0; m < kPairs; ++m) acc[m][n] = vusmmlaq_s32(acc[m][n], x[m], weight);
  }
}

OCTET_ALWAYS_INLINE uint8x16_t lower_halves(uint8x16_t a, uint8x16_t b) {
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

OCTET_ALWAYS_INLINE uint8x16_t upper_halves(uint8x16_t a, uint8x16_t b) {
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

/// Returns four channels of one of two pixels from two accumulators: 0 is the first pixel, 1 the second.
OCTET_ALWAYS_INLINE int32x4_t four_channels(int pixel, int32x4_t a, int32x4_t b) {
  const int64x2_t first = vreinterpretq_s64_s32(a), second = vreinterpretq_s64_s32(b);
  return vreinterpretq_s32_s64(pixel == 0 ? vzip1q_s64(first, second) : vzip2q_s64(first, second));
}

template <int kRows, int kWidth>
void gemm(const GemmTile& tile) {
  constexpr int kPairs = (kRows + 1) / 2, kColumns = 4 * kWidth, kStep = 16 * kColumns;
  int32x4_t acc[kPairs][kColumns];
#pragma GCC unroll 8
  for (int n = 0; n < kColumns; ++n) {
    const int32x2_t init = vld1_s32(tile.init + 2 * n);
#pragma GCC unroll 2
    for (int m = 0; m < kPairs; ++m) acc[m][n] = vcombine_s32(init, init);
  }
  const int8_t* w = tile.w;
  const uint8_t* a = tile.a;
  uint8x16_t x[kPairs], next[kPairs];
  const auto load = [&] {
#pragma GCC unroll 2
    for (int m = 0; m < kPairs; ++m) {
      const uint8_t* row = a + 2 * m * tile.a_stride;
      const uint8x16_t first = vld1q_u8(row), second = 2 * m + 1 < kRows ? vld1q_u8(row + tile.a_stride) : first;
      x[m] = lower_halves(first, second);
      next[m] = upper_halves(first, second);
    }
  };
  int steps = tile.k_steps;
  for (; steps >= 2; steps -= 2, a += 16, w += 2 * kStep) {
    load();
    add_products(w, x, acc);
    add_products(w + kStep, next, acc);
  }
  if (steps > 0) {
    load();
    add_products(w, x, acc);
  }
  int32x4_t sums[kRows][kColumns / 2];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; n += 2) sums[m][n / 2] = four_channels(m % 2, acc[m / 2][n], acc[m / 2][n + 1]);
  }
  finish_tile(tile, sums);
}

template <int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<kWidth, kRows - 1>(k);
}

GemmKernels make_kernels() {
  GemmKernels k = neon_tiles("i8mm", 8, kTileRows, 2);
  fill_rows<1, kTileRows>(k);
  fill_rows<2, kTileRows>(k);
  return k;
}

}  // namespace

const GemmKernels& i8mm_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
