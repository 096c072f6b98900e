// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI kernels of depthwise convolutions: 64 channels across the bytes of a register, 4 taps an
// instruction.
//
// vpdpbusd sums 4 neighbouring bytes, which here must be 4 taps of one channel: 4 loads of 64 channels are interleaved
// byte by byte (8 unpacks), giving 4 registers of 16 channels x 4 taps. Unpacks work within 128-bit lanes, so register
// q holds channels 16 * lane + 4 * q + j; weights and constants are stored in that order, and the packs at the end undo
// it. A 3x3 window has 9 taps: 3 groups of 4, a quarter of the products wasted, which is cheaper than 9 multiplications
// of widened channels.
//
// Roofline: for 64 outputs of a 3x3 window 12 loads, 24 unpacks, 12 vpdpbusd and about 30 operations to make codes:
// near 30 cycles, or 2 outputs a cycle, while 9 bytes an output come from L1. Weights of a block stay in registers
// along a run of pixels.
#include <immintrin.h>

#include "kernels/conv/cpu/avx512_epilogue.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

constexpr int kRegisters = 4;  // registers of 16 slots each
constexpr int kTapGroup = 4;
constexpr int kGroupBytes = 64 * kTapGroup;

/// Interleaves the bytes of 4 vectors: out[q] has slots 16 * q and on.
OCTET_ALWAYS_INLINE void interleave(__m512i a, __m512i b, __m512i c, __m512i d, __m512i (&out)[kRegisters]) {
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
  out[0] = _mm512_unpacklo_epi16(ab_low, cd_low);
  out[1] = _mm512_unpackhi_epi16(ab_low, cd_low);
  out[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
  out[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
}

/// Loads 64 channels of one pixel, or 32 channels of two pixels (kNarrow).
template <bool kNarrow>
OCTET_ALWAYS_INLINE __m512i load(const uint8_t* first, const uint8_t* second) {
  if constexpr (!kNarrow) return _mm512_loadu_si512(first);
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

template <bool kNarrow>
OCTET_ALWAYS_INLINE __m512i load_residual(const uint8_t* from, ptrdiff_t next, __mmask64 mask) {
  if constexpr (!kNarrow) return _mm512_maskz_loadu_epi8(mask, from);
  const __mmask32 half = static_cast<__mmask32>(mask);
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(half, from)),
                            _mm256_maskz_loadu_epi8(half, from + next), 1);
}

/// Turns accumulators into 64 codes in channel order.
OCTET_ALWAYS_INLINE __m512i to_codes(const DepthwiseRun& run, const EpilogueConstants& k,
                                     const __m512i (&acc)[kRegisters], const __m512i* residual) {
  __m512 t[kRegisters];
#pragma GCC unroll 4
  for (int i = 0; i < kRegisters; ++i) {
    t[i] = rescale16(acc[i], run.multiplier + 16 * i, run.bias + 16 * i);
    if (residual != nullptr) t[i] = add_residual16(t[i], residual[i], k);
  }
  return pack_codes(round_words(t[0], t[1], k), round_words(t[2], t[3], k), k);
}

/// Computes a run. kGroups: number of tap groups, whose weights then stay in registers, or 0 for any number.
template <int kGroups, bool kNarrow, bool kResidual>
void run_pixels(const DepthwiseRun& run) {
  constexpr int kStep = kNarrow ? 2 : 1;
  const EpilogueConstants constants(*run.epilogue);
  const __mmask64 mask = run.channels >= 64 ? ~__mmask64{0} : (__mmask64{1} << run.channels) - 1;
  __m512i weight[kGroups > 0 ? kGroups * kRegisters : 1];
#pragma GCC unroll 12
  for (int i = 0; i < kGroups * kRegisters; ++i) weight[i] = _mm512_load_si512(run.w + 64 * i);

  for (int pixel = 0; pixel < run.pixels; pixel += kStep) {
    const bool single = pixel + 1 == run.pixels;  // the second pixel of the pair then repeats the first
    const int second = single ? pixel : pixel + kStep - 1;
    const uint8_t *const *taps = run.taps + pixel * run.tap_step, *const *taps2 = run.taps + second * run.tap_step;
    const ptrdiff_t at = run.channel + pixel * run.pixel_step, at2 = run.channel + second * run.pixel_step;
    __m512i acc[kRegisters];
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) acc[i] = _mm512_load_si512(run.init + 16 * i);
    const int groups = kGroups > 0 ? kGroups : run.tap_groups;
#pragma GCC unroll 3
    for (int g = 0; g < groups; ++g, taps += kTapGroup, taps2 += kTapGroup) {
      __m512i x[kRegisters];
      interleave(load<kNarrow>(taps[0] + at, taps2[0] + at2), load<kNarrow>(taps[1] + at, taps2[1] + at2),
                 load<kNarrow>(taps[2] + at, taps2[2] + at2), load<kNarrow>(taps[3] + at, taps2[3] + at2), x);
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        const __m512i w = kGroups > 0 ? weight[kGroups > 0 ? g * kRegisters + i : 0]
                                      : _mm512_load_si512(run.w + g * kGroupBytes + 64 * i);
        acc[i] = _mm512_dpbusd_epi32(acc[i], x[i], w);
      }
    }

    __m512i residual[kRegisters];
    if constexpr (kResidual) {
      const __m512i zero = _mm512_setzero_si512(), top = _mm512_set1_epi8(kTwoTo23Bits >> 24);
      const ptrdiff_t stride = run.residual_stride;
      interleave(load_residual<kNarrow>(run.residual + pixel * stride, single ? 0 : stride, mask), zero, zero, top,
                 residual);
    }
    const __m512i codes = to_codes(run, constants, acc, kResidual ? residual : nullptr);
    uint8_t* to = run.y + pixel * run.y_stride;
    if constexpr (kNarrow) {
      const __mmask32 half = static_cast<__mmask32>(mask);
      _mm256_mask_storeu_epi8(to, half, _mm512_castsi512_si256(codes));
      if (!single) _mm256_mask_storeu_epi8(to + run.y_stride, half, _mm512_extracti64x4_epi64(codes, 1));
    } else {
      _mm512_mask_storeu_epi8(to, mask, codes);
    }
  }
}

template <bool kNarrow>
void run_any(const DepthwiseRun& run) {
  if (run.epilogue->has_residual) {
    run_pixels<0, kNarrow, true>(run);
  } else if (run.tap_groups == 3) {
    run_pixels<3, kNarrow, false>(run);
  } else {
    run_pixels<0, kNarrow, false>(run);
  }
}

DepthwiseKernels make_kernels() {
  DepthwiseKernels k;
  k.isa = "avx512_vnni";
  k.slots = 64;
  k.channels = 64;
  k.narrow_channels = 32;
  k.tap_group = kTapGroup;
  for (int slot = 0; slot < 64; ++slot) {
    const int q = slot / 16, lane = slot % 16 / 4, j = slot % 4;
    k.order[slot] = static_cast<uint8_t>(16 * lane + 4 * q + j);
    k.narrow_order[slot] = static_cast<uint8_t>(16 * (lane % 2) + 4 * q + j);
  }
  k.run = run_any<false>;
  k.run_narrow = run_any<true>;
  return k;
}

}  // namespace

const DepthwiseKernels& avx512_depthwise_kernels() {
  static const DepthwiseKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
