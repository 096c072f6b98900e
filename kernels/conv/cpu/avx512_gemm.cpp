// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI micro-kernels of the matrix product: a tile of up to 14 pixels x 32 channels (or 6 x 64 if there are
// few rows), all of k.
//
// Layout: activations are rows of bytes; weights come as [k / 4][channels][4], so that one vpdpbusd adds 4 products to
// each of 16 channels. Per step of k (4 bytes): load 2 weight vectors, then for each row broadcast 4 bytes and issue 2
// vpdpbusd. 14 x 2 accumulators + 2 weights + 1 broadcast = 31 of 32 registers, and nothing leaves them before codes.
//
// Roofline: 28 vpdpbusd take 14 cycles on a core with two 512-bit pipes. They need 16 loads (of 28 that two load ports
// could do) and, when neither operand is in L1, 128 + 14 * 4 bytes from L2: 13 bytes a cycle, well below its 32 to 64.
// 28 independent chains hide the latency (4) of both pipes, as 8 already would. The 6 x 64 tile reads 23 bytes a cycle
// but keeps 4 chains alive for a single row, which is what a linear layer of batch 1 has.
//
// Everything is unrolled by pragma: GCC otherwise leaves the accumulators in memory.
#include <immintrin.h>

#include "kernels/conv/cpu/avx512_tiles.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

/// Adds the products of all k.
template <bool kPrefetch, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void add_products(const GemmTile& tile, __m512i (&acc)[kRows][kWidth]) {
  // Each base pointer serves five rows, at 0 to 4 strides, so that few registers hold addresses.
  constexpr int kBases = (kRows + 4) / 5;
  const ptrdiff_t stride = tile.a_stride;
  const uint8_t* base[kBases];
#pragma GCC unroll 3
  for (int i = 0; i < kBases; ++i) base[i] = tile.a + 5 * i * stride;
  const int8_t *w = tile.w, *next_w = tile.next_w;
  for (int k = 0; k < tile.k_steps; ++k) {
    __m512i weight[kWidth];
#pragma GCC unroll 4
    for (int n = 0; n < kWidth; ++n) {
      weight[n] = _mm512_load_si512(w + n * 64);
      if constexpr (kPrefetch) _mm_prefetch(next_w + n * 64, _MM_HINT_T1);
    }
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) {
      int four;
      __builtin_memcpy(&four, base[m / 5] + (m % 5) * stride + 4 * static_cast<ptrdiff_t>(k), 4);
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int n = 0; n < kWidth; ++n) acc[m][n] = _mm512_dpbusd_epi32(acc[m][n], x, weight[n]);
    }
    w += kWidth * 64;
    if constexpr (kPrefetch) next_w += kWidth * 64;
  }
}

template <int kRows, int kWidth>
void gemm(const GemmTile& tile) {
  __m512i acc[kRows][kWidth];
#pragma GCC unroll 4
  for (int n = 0; n < kWidth; ++n) {
    const __m512i init = _mm512_load_si512(tile.init + n * kLanes);
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) acc[m][n] = init;
  }

  tile.next_w == nullptr ? add_products<false>(tile, acc) : add_products<true>(tile, acc);
  finish_any(tile, acc);
}

template <int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<kWidth, kRows - 1>(k);
}

GemmKernels make_kernels() {
  GemmKernels k;
  k.isa = "avx512_vnni";
  k.k_group = 4;
  k.activation_bytes = 1;
  k.lanes = kLanes;
  k.width = 2;
  k.rows = 14;
  k.flat_width = 4;
  k.flat_rows = 6;
  k.gather = gather;
  set_pair_order(k);
  fill_rows<1, 14>(k);
  fill_rows<2, 14>(k);
  fill_rows<3, 6>(k);
  fill_rows<4, 6>(k);
  return k;
}

}  // namespace

const GemmKernels& avx512_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
