// SPDX-License-Identifier: Apache-2.0
// Turns accumulators into codes in AVX-512 registers. Included by the avx512 files only. Everything is in an unnamed
// namespace, so that no other file can be linked to this code.
//
// Two vectors of 16 accumulators make 32 channels. Packs work within 128-bit lanes, so slot 4 * lane + j of vector q
// holds channel 8 * lane + 4 * q + j; pack_gemm() puts weights and constants there.
//
// The upper clamp bound is applied in float, before the conversion, as the contract asks. The lower bound needs no
// instruction in float: conversion and packs saturate whatever is below 0 (NaN and values below int32 convert to
// INT_MIN), and one byte maximum raises 32 codes to clamp_min. Where no value is beyond int32 (Epilogue::fits_int32)
// packs saturate what is above 255 as well, and the upper bound is a byte minimum.
#pragma once

#include <immintrin.h>

#include "kernels/conv/cpu/micro_kernels.h"

/// Without it GCC calls these functions with accumulators in memory.
#define OCTET_ALWAYS_INLINE inline __attribute__((always_inline))

namespace octet::kernels {
namespace {

/// The bits of 2^23 as a float. A code in the lowest byte makes them 2^23 + code: no instruction has to convert it.
constexpr int kTwoTo23 = 1 << 23, kTwoTo23Bits = 0x4B000000;

struct EpilogueConstants {
  __m512 high, residual_multiplier, residual_zero;
  __m512i zero_point_words, low_bytes, high_bytes;

  explicit EpilogueConstants(const Epilogue& e)
      : high(_mm512_set1_ps(e.high)),
        residual_multiplier(_mm512_set1_ps(e.residual_multiplier)),
        residual_zero(_mm512_set1_ps(static_cast<float>(kTwoTo23 + e.residual_zero_point))),
        zero_point_words(_mm512_set1_epi16(static_cast<int16_t>(e.zero_point))),
        low_bytes(_mm512_set1_epi8(static_cast<char>(e.clamp_min))),
        high_bytes(_mm512_set1_epi8(static_cast<char>(e.clamp_min + static_cast<int>(e.high - e.low)))) {}
};

OCTET_ALWAYS_INLINE __m512 rescale16(__m512i acc, const float* multiplier, const float* bias) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc), _mm512_load_ps(multiplier), _mm512_load_ps(bias));
}

/// Adds the residual of 16 channels. codes: each with kTwoTo23Bits above it. The difference is exact.
OCTET_ALWAYS_INLINE __m512 add_residual16(__m512 t, __m512i codes, const EpilogueConstants& k) {
  const __m512 difference = _mm512_sub_ps(_mm512_castsi512_ps(codes), k.residual_zero);
  return _mm512_fmadd_ps(difference, k.residual_multiplier, t);
}

/// Adds the residual of a pair of vectors. codes: those of 32 channels in order.
OCTET_ALWAYS_INLINE void add_residual_pair(__m256i codes, const EpilogueConstants& k, __m512 (&t)[2]) {
  const __m512i words = _mm512_cvtepu8_epi16(codes), above = _mm512_set1_epi16(kTwoTo23Bits >> 16);
  t[0] = add_residual16(t[0], _mm512_unpacklo_epi16(words, above), k);
  t[1] = add_residual16(t[1], _mm512_unpackhi_epi16(words, above), k);
}

/// Returns rint(min(t, high)) + zero point of two vectors as 32 words in channel order. min returns its second operand
/// if one is NaN.
OCTET_ALWAYS_INLINE __m512i round_words(__m512 t0, __m512 t1, const EpilogueConstants& k) {
  const __m512i q0 = _mm512_cvtps_epi32(_mm512_min_ps(k.high, t0));
  const __m512i q1 = _mm512_cvtps_epi32(_mm512_min_ps(k.high, t1));
  return _mm512_adds_epi16(_mm512_packs_epi32(q0, q1), k.zero_point_words);
}

/// Rounds as round_words() does, where all values fit into int32 (Epilogue::fits_int32) and pack_bounded() follows.
OCTET_ALWAYS_INLINE __m512i round_bounded(__m512 t0, __m512 t1, const EpilogueConstants& k) {
  return _mm512_adds_epi16(_mm512_packs_epi32(_mm512_cvtps_epi32(t0), _mm512_cvtps_epi32(t1)), k.zero_point_words);
}

/// Packs words to codes: within each 128-bit lane 8 of the first vector, then 8 of the second.
OCTET_ALWAYS_INLINE __m512i pack_codes(__m512i words0, __m512i words1, const EpilogueConstants& k) {
  return _mm512_max_epu8(_mm512_packus_epi16(words0, words1), k.low_bytes);
}

/// Packs words that were not clamped yet.
OCTET_ALWAYS_INLINE __m512i pack_bounded(__m512i words0, __m512i words1, const EpilogueConstants& k) {
  return _mm512_min_epu8(pack_codes(words0, words1, k), k.high_bytes);
}

}  // namespace
}  // namespace octet::kernels
