// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of AVX-VNNI: vpdpbusd in registers of 256 bits, for processors without AVX-512 (Intel's client
// processors from Alder Lake on, AMD's from Zen 5 on beside AVX-512). Everything but the two functions that offer them
// is in an unnamed namespace, so that no other file can be linked to this code.
//
// The matrix product: one vpdpbusd adds 4 products to each of 8 channels; weights are [k / 4][channels][4], codes stay
// bytes. Per step of k: 2 weight vectors, then for each of 6 rows one broadcast and 2 vpdpbusd: 12 of them for 8 loads,
// in 12 chains, which hide their latency (5) on two pipes.
#include <immintrin.h>

#include "kernels/conv/cpu/avx2_tiles.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

struct ByteProducts {
  static constexpr int kWeightBytes = 32;
  static __m256i load(const int8_t* w) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(w)); }
  static __m256i add(__m256i acc, __m256i x, __m256i weight) { return _mm256_dpbusd_avx_epi32(acc, x, weight); }
};

// Depthwise convolution as in avx512_depthwise.cpp: 32 channels across the bytes of a register, 4 taps an instruction.
// 4 loads are interleaved byte by byte within lanes of 128 bits, so register q holds channels 16 * lane + 4 * q + j,
// and so do weights and constants; two packs at the end put the codes in order.

constexpr int kRegisters = 4;  // registers of 8 slots each
constexpr int kTapGroup = 4;
constexpr int kChannels = 32;

/// Interleaves the bytes of 4 vectors: out[q] has slots 8 * q and on.
inline void interleave(__m256i a, __m256i b, __m256i c, __m256i d, __m256i (&out)[kRegisters]) {
  const __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
  out[0] = _mm256_unpacklo_epi16(ab_low, cd_low);
  out[1] = _mm256_unpackhi_epi16(ab_low, cd_low);
  out[2] = _mm256_unpacklo_epi16(ab_high, cd_high);
  out[3] = _mm256_unpackhi_epi16(ab_high, cd_high);
}

inline __m256i load32(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// Returns 32 accumulators, or their residuals, as codes in channel order.
inline __m256i to_codes(const DepthwiseRun& run, const __m256i (&acc)[kRegisters], const __m256i* residual) {
  const Epilogue& e = *run.epilogue;
  __m256i rounded[kRegisters];
  for (int q = 0; q < kRegisters; ++q) {
    __m256 t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[q]), _mm256_load_ps(run.multiplier + kLanes * q),
                               _mm256_load_ps(run.bias + kLanes * q));
    if (residual != nullptr) t = add_residual8(e, t, residual[q]);
    rounded[q] = round8(e, t);
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(rounded[0], rounded[1]), _mm256_packs_epi32(rounded[2], rounded[3]));
}

/// Loads the codes of up to 32 channels.
inline __m256i load_channels(const uint8_t* from, int channels) {
  if (channels >= kChannels) return load32(from);
  alignas(32) uint8_t codes[kChannels] = {};
  for (int i = 0; i < channels; ++i) codes[i] = from[i];
  return load32(codes);
}

inline void store_channels(uint8_t* to, __m256i codes, int channels) {
  if (channels >= kChannels) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), codes);
  alignas(32) uint8_t values[kChannels];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), codes);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

void run_pixels(const DepthwiseRun& run) {
  for (int pixel = 0; pixel < run.pixels; ++pixel) {
    const uint8_t* const* taps = run.taps + pixel * run.tap_step;
    const ptrdiff_t at = run.channel + pixel * run.pixel_step;
    __m256i acc[kRegisters], x[kRegisters];
    for (int q = 0; q < kRegisters; ++q)
      acc[q] = _mm256_load_si256(reinterpret_cast<const __m256i*>(run.init + kLanes * q));
    for (int g = 0; g < run.tap_groups; ++g, taps += kTapGroup) {
      interleave(load32(taps[0] + at), load32(taps[1] + at), load32(taps[2] + at), load32(taps[3] + at), x);
      const int8_t* w = run.w + g * kChannels * kTapGroup;
      for (int q = 0; q < kRegisters; ++q) acc[q] = ByteProducts::add(acc[q], x[q], ByteProducts::load(w + 32 * q));
    }
    __m256i residual[kRegisters];
    if (run.epilogue->has_residual) {
      const __m256i zero = _mm256_setzero_si256();
      interleave(load_channels(run.residual + pixel * run.residual_stride, run.channels), zero, zero, zero, residual);
    }
    const __m256i codes = to_codes(run, acc, run.epilogue->has_residual ? residual : nullptr);
    store_channels(run.y + pixel * run.y_stride, codes, run.channels);
  }
}

DepthwiseKernels make_depthwise_kernels() {
  DepthwiseKernels k;
  k.isa = "avx_vnni";
  k.slots = k.channels = kChannels;
  k.tap_group = kTapGroup;
  for (int slot = 0; slot < kChannels; ++slot)
    k.order[slot] = static_cast<uint8_t>(slot % 8 / 4 * 16 + slot / 8 * 4 + slot % 4);
  k.run = run_pixels;
  return k;
}

}  // namespace

const GemmKernels& avx_vnni_gemm_kernels() {
  static const GemmKernels kernels = make_gemm_kernels<ByteProducts>("avx_vnni", 4, 1);
  return kernels;
}

const DepthwiseKernels& avx_vnni_depthwise_kernels() {
  static const DepthwiseKernels kernels = make_depthwise_kernels();
  return kernels;
}

}  // namespace octet::kernels
