// 8 accumulators to codes or logits in AVX2 registers. Included by the avx2 files only; everything is in an unnamed
// namespace, so that no other file can be linked to this code.
#pragma once

#include <immintrin.h>

#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {
namespace {

constexpr int kAvx2Lanes = 8;

/// 8 codes of a residual; only `channels` of them are read.
inline __m256i load_codes(const uint8_t* from, int channels) {
  if (channels >= kAvx2Lanes) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  alignas(8) uint8_t codes[kAvx2Lanes] = {};
  for (int i = 0; i < channels; ++i) codes[i] = from[i];
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
}

inline void store_floats(float* to, __m256 t, int channels) {
  if (channels >= kAvx2Lanes) {
    _mm256_storeu_ps(to, t);
    return;
  }
  alignas(32) float values[kAvx2Lanes];
  _mm256_store_ps(values, t);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

inline void store_codes(uint8_t* to, __m256i codes, int channels) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  if (channels >= kAvx2Lanes) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
    return;
  }
  alignas(16) uint8_t values[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(values), bytes);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

/// Finishes up to 8 channels of one pixel. residual may be null; y is uint8, or float with float_output.
inline void finish8(const Epilogue& e, __m256i acc, const float* multiplier, const float* bias, const uint8_t* residual,
                    void* y, int channels) {
  __m256 t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), _mm256_load_ps(multiplier), _mm256_load_ps(bias));
  if (e.has_residual) {
    const __m256i difference =
        _mm256_sub_epi32(load_codes(residual, channels), _mm256_set1_epi32(e.residual_zero_point));
    t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(difference), _mm256_set1_ps(e.residual_multiplier), t);
  }
  if (e.float_output) {
    store_floats(static_cast<float*>(y), t, channels);
    return;
  }
  // max and min return their second operand when the first is NaN: NaN becomes `low`.
  t = _mm256_min_ps(_mm256_max_ps(t, _mm256_set1_ps(e.low)), _mm256_set1_ps(e.high));
  store_codes(static_cast<uint8_t*>(y), _mm256_add_epi32(_mm256_cvtps_epi32(t), _mm256_set1_epi32(e.zero_point)),
              channels);
}

}  // namespace
}  // namespace octet::kernels
