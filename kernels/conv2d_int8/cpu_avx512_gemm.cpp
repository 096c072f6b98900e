// AVX-512 VNNI micro-kernels: a tile of up to 14 pixels x 32 channels (or 6 x 64 where there are few rows), all of k.
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

#include "kernels/conv2d_int8/cpu_gemm.h"

namespace octet::kernels {
namespace {

constexpr int kLanes = 16;

/// t -> code, as 16 bytes. max and min return their second operand when the first is NaN: NaN becomes `low`.
inline __m128i to_codes(__m512 t, __m512 low, __m512 high, __m512i zero_point) {
  const __m512 clamped = _mm512_min_ps(_mm512_max_ps(t, low), high);
  return _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(clamped), zero_point));
}

inline __mmask16 lanes_mask(int channels) {
  return channels >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << channels) - 1u);
}

template <bool kResidual, bool kLogits, int kRows, int kWidth>
inline void finish(const GemmTile& tile, __m512i (&acc)[kRows][kWidth]) {
  const Epilogue& e = *tile.epilogue;
  const __m512 low = _mm512_set1_ps(e.low), high = _mm512_set1_ps(e.high);
  const __m512i zero_point = _mm512_set1_epi32(e.zero_point);
#pragma GCC unroll 4
  for (int n = 0; n < kWidth; ++n) {
    const __m512 multiplier = _mm512_load_ps(tile.multiplier + n * kLanes);
    const __m512 bias = _mm512_load_ps(tile.bias + n * kLanes);
    const __mmask16 mask = lanes_mask(tile.channels - n * kLanes);
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) {
      // One accumulator at a time: GCC would start all of them at once and run out of registers.
      __asm__ volatile("" : "+v"(acc[m][n]) : : "memory");
      __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[m][n]), multiplier, bias);
      if constexpr (kResidual) {
        const __m128i codes = _mm_maskz_loadu_epi8(mask, tile.residual + m * tile.residual_stride + n * kLanes);
        const __m512i difference =
            _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(e.residual_zero_point));
        t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(difference), _mm512_set1_ps(e.residual_multiplier), t);
      }
      const ptrdiff_t out = m * tile.y_stride + n * kLanes;
      if constexpr (kLogits) {
        _mm512_mask_storeu_ps(static_cast<float*>(tile.y) + out, mask, t);
      } else {
        _mm_mask_storeu_epi8(static_cast<uint8_t*>(tile.y) + out, mask, to_codes(t, low, high, zero_point));
      }
    }
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

  // Five rows hang on each base pointer, at 0 to 4 strides: few enough registers for x86 addressing.
  constexpr int kBases = (kRows + 4) / 5;
  const ptrdiff_t stride = tile.a_stride;
  const uint8_t* base[kBases];
#pragma GCC unroll 3
  for (int i = 0; i < kBases; ++i) base[i] = tile.a + 5 * i * stride;
  const int8_t* w = tile.w;
  for (int k = 0; k < tile.k_steps; ++k) {
    __m512i weight[kWidth];
#pragma GCC unroll 4
    for (int n = 0; n < kWidth; ++n) weight[n] = _mm512_load_si512(w + n * 64);
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) {
      int four;
      __builtin_memcpy(&four, base[m / 5] + (m % 5) * stride + 4 * static_cast<ptrdiff_t>(k), 4);
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int n = 0; n < kWidth; ++n) acc[m][n] = _mm512_dpbusd_epi32(acc[m][n], x, weight[n]);
    }
    w += kWidth * 64;
  }
  const bool residual = tile.epilogue->has_residual, logits = tile.epilogue->float_output;
  if (!logits) {
    residual ? finish<true, false>(tile, acc) : finish<false, false>(tile, acc);
  } else {
    residual ? finish<true, true>(tile, acc) : finish<false, true>(tile, acc);
  }
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
