// SPDX-License-Identifier: Apache-2.0
// The matrix product in registers of 256 bits, a tile of up to 6 pixels x 16 channels, all of k, for whichever
// instructions multiply; and how 8 accumulators become codes. Included by the files of AVX2 and AVX-VNNI only.
// Everything is in an unnamed namespace, so that no other file can be linked to this code.
#pragma once

#include <immintrin.h>

#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

constexpr int kLanes = 8;

/// Loads 8 codes of a residual, of which only the first `channels` are read.
inline __m256i load_codes(const uint8_t* from, int channels) {
  if (channels >= kLanes) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  alignas(8) uint8_t codes[kLanes] = {};
  for (int i = 0; i < channels; ++i) codes[i] = from[i];
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
}

inline void store_floats(float* to, __m256 t, int channels) {
  if (channels >= kLanes) {
    _mm256_storeu_ps(to, t);
    return;
  }
  alignas(32) float values[kLanes];
  _mm256_store_ps(values, t);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

inline void store_codes(uint8_t* to, __m256i codes, int channels) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  if (channels >= kLanes) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
    return;
  }
  alignas(16) uint8_t values[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(values), bytes);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

/// Adds the values of 8 residual codes to t.
inline __m256 add_residual8(const Epilogue& e, __m256 t, __m256i codes) {
  const __m256i difference = _mm256_sub_epi32(codes, _mm256_set1_epi32(e.residual_zero_point));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(difference), _mm256_set1_ps(e.residual_multiplier), t);
}

/// Returns rint(clamp(t)) + zero point. max and min return their second operand when the first is NaN: NaN becomes
/// `low`.
inline __m256i round8(const Epilogue& e, __m256 t) {
  t = _mm256_min_ps(_mm256_max_ps(t, _mm256_set1_ps(e.low)), _mm256_set1_ps(e.high));
  return _mm256_add_epi32(_mm256_cvtps_epi32(t), _mm256_set1_epi32(e.zero_point));
}

/// Turns 8 accumulators into up to 8 channels of one pixel. residual may be null; y is uint8, or float with
/// float_output.
inline void finish8(const Epilogue& e, __m256i acc, const float* multiplier, const float* bias, const uint8_t* residual,
                    void* y, int channels) {
  __m256 t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), _mm256_load_ps(multiplier), _mm256_load_ps(bias));
  if (e.has_residual) t = add_residual8(e, t, load_codes(residual, channels));
  if (e.float_output) return store_floats(static_cast<float*>(y), t, channels);
  store_codes(static_cast<uint8_t*>(y), round8(e, t), channels);
}

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

/// Products says how 4 bytes of a row meet the weights of 8 channels: kWeightBytes of them, load(), and add(), which
/// returns the accumulators with the products added. 6 x 2 accumulators, 2 vectors of weights, the broadcast bytes and
/// a product fill the 16 registers.
template <class Products, int kRows, int kWidth>
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
      weight[n] = Products::load(w + n * Products::kWeightBytes);
    }
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      int bytes;
      __builtin_memcpy(&bytes, tile.a + m * tile.a_stride + 4 * static_cast<ptrdiff_t>(k), 4);
      const __m256i x = _mm256_set1_epi32(bytes);
#pragma GCC unroll 2
      for (int n = 0; n < kWidth; ++n) acc[m][n] = Products::add(acc[m][n], x, weight[n]);
    }
    w += kWidth * Products::kWeightBytes;
  }
  // The accumulators go through memory, so that the epilogue is a plain loop.
  alignas(32) __m256i done[kRows][kWidth];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < kWidth; ++n) done[m][n] = acc[m][n];
  }
  finish<kRows, kWidth>(tile, done);
}

template <class Products, int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<Products, kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<Products, kWidth, kRows - 1>(k);
}

template <class Products>
GemmKernels make_gemm_kernels(const char* isa, int k_group, int activation_bytes) {
  GemmKernels k;
  k.isa = isa;
  k.k_group = k_group;
  k.activation_bytes = activation_bytes;
  k.lanes = kLanes;
  k.width = k.flat_width = 2;
  k.rows = k.flat_rows = 6;
  for (int slot = 0; slot < 2 * kLanes; ++slot) k.pair_order[slot] = static_cast<uint8_t>(slot);
  fill_rows<Products, 1, 6>(k);
  fill_rows<Products, 2, 6>(k);
  return k;
}

}  // namespace
}  // namespace octet::kernels
