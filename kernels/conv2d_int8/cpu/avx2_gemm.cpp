// AVX2 micro-kernels: a tile of up to 6 pixels x 16 channels, all of k, exact.
//
// vpmaddubsw, AVX2's product of u8 and s8, saturates its sums of two to int16, so it cannot keep the contract. Here
// both sides are int16 and vpmaddwd adds two exact products to int32: activations are widened when rows are gathered,
// weights as they are loaded, [k / 2][channels][2]. Per step of k (2 codes): 2 weight vectors, then for each row one
// broadcast, 2 vpmaddwd and 2 vpaddd. 6 x 2 accumulators + 2 weights + broadcast + product = 16 of 16 registers. Half
// the bytes and half the vector of AVX-512, two instructions instead of one: an eighth of its peak.
#include "kernels/conv2d_int8/cpu/avx2_epilogue.h"
#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {
namespace {

constexpr int kLanes = kAvx2Lanes;

template <int kRows, int kWidth>
void finish(const GemmTile& tile, const __m256i (&acc)[kRows][kWidth]) {
  const Epilogue& e = *tile.epilogue;
  const int element = e.float_output ? sizeof(float) : 1;
  for (int n = 0; n < kWidth; ++n) {
    const int channel = n * kLanes;
    if (channel >= tile.channels) break;
    for (int m = 0; m < kRows; ++m) {
      const uint8_t* residual = e.has_residual ? tile.residual + m * tile.residual_stride + channel : nullptr;
      finish8(e, acc[m][n], tile.multiplier + channel, tile.bias + channel, residual,
              static_cast<uint8_t*>(tile.y) + (m * tile.y_stride + channel) * element, tile.channels - channel);
    }
  }
}

template <int kRows, int kWidth>
void gemm(const GemmTile& tile) {
  __m256i acc[kRows][kWidth];
#pragma GCC unroll 2
  for (int n = 0; n < kWidth; ++n) {
    const __m256i init = _mm256_load_si256(reinterpret_cast<const __m256i*>(tile.init + n * kLanes));
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) acc[m][n] = init;
  }
  const int8_t* w = tile.w;
  for (int k = 0; k < tile.k_steps; ++k) {
    __m256i weight[kWidth];
#pragma GCC unroll 2
    for (int n = 0; n < kWidth; ++n) {
      weight[n] = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(w) + n));
    }
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      int two;
      __builtin_memcpy(&two, tile.a + m * tile.a_stride + 4 * static_cast<ptrdiff_t>(k), 4);
      const __m256i x = _mm256_set1_epi32(two);
#pragma GCC unroll 2
      for (int n = 0; n < kWidth; ++n) acc[m][n] = _mm256_add_epi32(acc[m][n], _mm256_madd_epi16(x, weight[n]));
    }
    w += kWidth * 16;
  }
  // Through memory, so that the epilogue is a plain loop.
  alignas(32) __m256i done[kRows][kWidth];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < kWidth; ++n) done[m][n] = acc[m][n];
  }
  finish<kRows, kWidth>(tile, done);
}

template <int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<kWidth, kRows - 1>(k);
}

GemmKernels make_kernels() {
  GemmKernels k;
  k.isa = "avx2";
  k.k_group = 2;
  k.activation_bytes = 2;
  k.lanes = kLanes;
  k.width = k.flat_width = 2;
  k.rows = k.flat_rows = 6;
  for (int slot = 0; slot < 2 * kLanes; ++slot) k.pair_order[slot] = static_cast<uint8_t>(slot);
  fill_rows<1, 6>(k);
  fill_rows<2, 6>(k);
  return k;
}

}  // namespace

const GemmKernels& avx2_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
