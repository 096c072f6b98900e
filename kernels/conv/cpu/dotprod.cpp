// SPDX-License-Identifier: Apache-2.0
// The matrix product of processors with SDOT (ARMv8.2: Cortex-A55, A75, A76 and later, Neoverse N1).
//
// SDOT adds four products of signed bytes to each lane, so codes are made signed, x - 128, by flipping their top bit;
// the start values hold the difference. A tile is 4 pixels x 16 channels: 16 accumulators. One register holds 16 codes
// of a pixel, of which SDOT takes four by lane: 16 k of a tile are 4 loads of codes, 16 of weights and 64 SDOT.
#include "kernels/conv/cpu/neon_tiles.h"

namespace octet::kernels {
namespace {

constexpr int kTileRows = 4;

/// Adds the products of four neighbouring k, which are lane kLane of each pixel's codes.
template <int kLane, int kRows, int kVectors>
OCTET_ALWAYS_INLINE void add_products(const int8_t* w, const int8x16_t (&x)[kRows], int32x4_t (&acc)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const int8x16_t weight = vld1q_s8(w + 16 * n);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) acc[m][n] = vdotq_laneq_s32(acc[m][n], weight, x[m], kLane);
  }
}

template <int kRows, int kWidth>
void gemm(const GemmTile& tile) {
  constexpr int kVectors = 2 * kWidth, kStep = 16 * kVectors;
  int32x4_t acc[kRows][kVectors];
  start_tile(tile, acc);
  const int8_t* w = tile.w;
  const uint8_t* a = tile.a;
  const uint8x16_t flip = vdupq_n_u8(0x80);
  int8x16_t x[kRows];
  const auto load = [&] {
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) x[m] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(a + m * tile.a_stride), flip));
  };
  int steps = tile.k_steps;
  for (; steps >= 4; steps -= 4, a += 16, w += 4 * kStep) {
    load();
    add_products<0>(w, x, acc);
    add_products<1>(w + kStep, x, acc);
    add_products<2>(w + 2 * kStep, x, acc);
    add_products<3>(w + 3 * kStep, x, acc);
  }
  for (; steps > 0; --steps, a += 4, w += kStep) {
    load();
    add_products<0>(w, x, acc);
  }
  finish_tile(tile, acc);
}

template <int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<kWidth, kRows - 1>(k);
}

GemmKernels make_kernels() {
  GemmKernels k = neon_tiles("dotprod", 4, kTileRows, 2);
  k.code_offset = 128;
  fill_rows<1, kTileRows>(k);
  fill_rows<2, kTileRows>(k);
  return k;
}

}  // namespace

const GemmKernels& dotprod_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
