// SPDX-License-Identifier: Apache-2.0
// The AVX2 micro-kernels of the matrix product and of depthwise convolutions. Everything but the two functions that
// offer them is in an unnamed namespace, so that no other file can be linked to this code.
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

/// Turns 8 accumulators into up to 8 channels of one pixel. residual may be null; y is uint8, or float with
/// float_output.
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

// The matrix product: a tile of up to 6 pixels x 16 channels, all of k, exact.
//
// vpmaddubsw, AVX2's product of u8 and s8, saturates its sums of two to int16, so it cannot keep the contract. Here
// both sides are int16 and vpmaddwd adds two exact products to int32: activations are widened when rows are gathered,
// weights as they are loaded, [k / 2][channels][2]. Per step of k (2 codes): 2 weight vectors, then for each row one
// broadcast, 2 vpmaddwd and 2 vpaddd. 6 x 2 accumulators + 2 weights + broadcast + product = 16 of 16 registers. Half
// the bytes and half the vector of AVX-512, two instructions instead of one: an eighth of its peak.

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
  // The accumulators go through memory, so that the epilogue is a plain loop.
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

GemmKernels make_gemm_kernels() {
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

// Depthwise convolution: 16 channels with 4 adjacent taps of each, exact in int16 x int16 -> int32.
//
// 4 loads of 16 channels are interleaved byte by byte (unpacks), giving 4 registers of 4 channels x 4 taps, which are
// widened to int16 and multiplied with widened weights (vpmaddwd). Each channel has two partial sums, added at the end.

constexpr int kSlots = 16;
constexpr int kTapGroup = 4;
constexpr int kRegisters = 4;  // registers of 4 channels each

inline __m128i load16(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

/// Adds to acc[i], for channels 4 * i and on, the sums of taps {0, 1} and {2, 3} of all groups.
inline void accumulate(const DepthwiseRun& run, int pixel, __m256i (&acc)[kRegisters]) {
  const uint8_t* const* taps = run.taps + pixel * run.tap_step;
  const ptrdiff_t at = run.channel + pixel * run.pixel_step;
  for (int g = 0; g < run.tap_groups; ++g, taps += kTapGroup) {
    const __m128i a = load16(taps[0] + at), b = load16(taps[1] + at);
    const __m128i c = load16(taps[2] + at), d = load16(taps[3] + at);
    const __m128i ab_low = _mm_unpacklo_epi8(a, b), ab_high = _mm_unpackhi_epi8(a, b);
    const __m128i cd_low = _mm_unpacklo_epi8(c, d), cd_high = _mm_unpackhi_epi8(c, d);
    const __m128i x[kRegisters] = {_mm_unpacklo_epi16(ab_low, cd_low), _mm_unpackhi_epi16(ab_low, cd_low),
                                   _mm_unpacklo_epi16(ab_high, cd_high), _mm_unpackhi_epi16(ab_high, cd_high)};
    const __m128i* w = reinterpret_cast<const __m128i*>(run.w + g * kSlots * kTapGroup);
    for (int i = 0; i < kRegisters; ++i) {
      const __m256i products =
          _mm256_madd_epi16(_mm256_cvtepu8_epi16(x[i]), _mm256_cvtepi8_epi16(_mm_load_si128(w + i)));
      acc[i] = _mm256_add_epi32(acc[i], products);
    }
  }
}

void run_pixels(const DepthwiseRun& run) {
  for (int pixel = 0; pixel < run.pixels; ++pixel) {
    __m256i acc[kRegisters] = {};
    accumulate(run, pixel, acc);
    uint8_t* y = run.y + pixel * run.y_stride;
    const uint8_t* residual = run.residual == nullptr ? nullptr : run.residual + pixel * run.residual_stride;
    for (int half = 0; half < 2; ++half) {
      const int channel = half * kLanes;
      if (channel >= run.channels) break;
      // The horizontal add works within lanes: channels 0 1 4 5 | 2 3 6 7, put in order by the permutation.
      const __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[2 * half], acc[2 * half + 1]), 0xD8);
      const __m256i init = _mm256_load_si256(reinterpret_cast<const __m256i*>(run.init + channel));
      finish8(*run.epilogue, _mm256_add_epi32(sums, init), run.multiplier + channel, run.bias + channel,
              residual == nullptr ? nullptr : residual + channel, y + channel, run.channels - channel);
    }
  }
}

DepthwiseKernels make_depthwise_kernels() {
  DepthwiseKernels k;
  k.isa = "avx2";
  k.slots = k.channels = kSlots;
  k.tap_group = kTapGroup;
  for (int slot = 0; slot < kSlots; ++slot) k.order[slot] = static_cast<uint8_t>(slot);
  k.run = run_pixels;
  return k;
}

}  // namespace

const GemmKernels& avx2_gemm_kernels() {
  static const GemmKernels kernels = make_gemm_kernels();
  return kernels;
}

const DepthwiseKernels& avx2_depthwise_kernels() {
  static const DepthwiseKernels kernels = make_depthwise_kernels();
  return kernels;
}

}  // namespace octet::kernels
