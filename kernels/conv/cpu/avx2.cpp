// SPDX-License-Identifier: Apache-2.0
// The AVX2 micro-kernels of the matrix product and of depthwise convolutions. Everything but the two functions that
// offer them is in an unnamed namespace, so that no other file can be linked to this code.
#include <immintrin.h>

#include "kernels/conv/cpu/avx2_tiles.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

// vpmaddubsw, AVX2's product of u8 and s8, saturates its sums of two to int16, so it cannot keep the contract. Here
// both sides are int16 and vpmaddwd adds two exact products to int32: activations are widened when rows are gathered,
// weights as they are loaded, [k / 2][channels][2]. Per step of k (2 codes): 2 weight vectors, then for each row one
// broadcast, 2 vpmaddwd and 2 vpaddd. Half the bytes and half the vector of AVX-512, two instructions instead of one:
// an eighth of its peak.
struct WordProducts {
  static constexpr int kWeightBytes = 16;
  static __m256i load(const int8_t* w) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(w)));
  }
  static __m256i add(__m256i acc, __m256i x, __m256i weight) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, weight));
  }
};

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
  static const GemmKernels kernels = make_gemm_kernels<WordProducts>("avx2", 2, 2);
  return kernels;
}

const DepthwiseKernels& avx2_depthwise_kernels() {
  static const DepthwiseKernels kernels = make_depthwise_kernels();
  return kernels;
}

}  // namespace octet::kernels
