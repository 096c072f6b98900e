// SPDX-License-Identifier: Apache-2.0
// What the matrix products of aarch64 share: accumulators begin with the channels' start values and end as codes.
// Included by the files of aarch64 only. Everything is in an unnamed namespace, so that no other file can be linked to
// this code.
#pragma once

#include <arm_neon.h>

#include "kernels/conv/cpu/micro_kernels.h"

/// Accumulators that are passed in memory would cost more than the sums.
#define OCTET_ALWAYS_INLINE inline __attribute__((always_inline))

namespace octet::kernels {
namespace {

constexpr int kLanes = 8;  // channels that are finished together: two registers of accumulators

/// Loads 8 codes, of which only the first `channels` are read.
OCTET_ALWAYS_INLINE int16x8_t load_codes(const uint8_t* from, int channels) {
  if (channels >= kLanes) return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(from)));
  uint8_t codes[kLanes] = {};
  for (int i = 0; i < channels; ++i) codes[i] = from[i];
  return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(codes)));
}

OCTET_ALWAYS_INLINE void store_floats(float* to, float32x4_t low, float32x4_t high, int channels) {
  float values[kLanes];
  float* first = channels >= kLanes ? to : values;
  vst1q_f32(first, low);
  vst1q_f32(first + 4, high);
  for (int i = 0; first == values && i < channels; ++i) to[i] = values[i];
}

OCTET_ALWAYS_INLINE void store_codes(uint8_t* to, uint8x8_t codes, int channels) {
  if (channels >= kLanes) return vst1_u8(to, codes);
  uint8_t values[kLanes];
  vst1_u8(values, codes);
  for (int i = 0; i < channels; ++i) to[i] = values[i];
}

/// Returns rint(clamp(t)). maxnm and minnm return the number where the other operand is NaN: NaN becomes `low`.
OCTET_ALWAYS_INLINE int32x4_t round_clamped(float32x4_t t, const Epilogue& e) {
  return vcvtnq_s32_f32(vminnmq_f32(vmaxnmq_f32(t, vdupq_n_f32(e.low)), vdupq_n_f32(e.high)));
}

/// Turns 8 accumulators into up to 8 channels of one pixel. residual may be null; y is uint8, or float with
/// float_output.
OCTET_ALWAYS_INLINE void finish8(const Epilogue& e, int32x4_t low, int32x4_t high, const float* multiplier,
                                 const float* bias, const uint8_t* residual, void* y, int channels) {
  float32x4_t t0 = vfmaq_f32(vld1q_f32(bias), vcvtq_f32_s32(low), vld1q_f32(multiplier));
  float32x4_t t1 = vfmaq_f32(vld1q_f32(bias + 4), vcvtq_f32_s32(high), vld1q_f32(multiplier + 4));
  if (e.has_residual) {
    const int16x8_t zero = vdupq_n_s16(static_cast<int16_t>(e.residual_zero_point));
    const int16x8_t difference = vsubq_s16(load_codes(residual, channels), zero);
    const float32x4_t factor = vdupq_n_f32(e.residual_multiplier);
    t0 = vfmaq_f32(t0, vcvtq_f32_s32(vmovl_s16(vget_low_s16(difference))), factor);
    t1 = vfmaq_f32(t1, vcvtq_f32_s32(vmovl_high_s16(difference)), factor);
  }
  if (e.float_output) return store_floats(static_cast<float*>(y), t0, t1, channels);
  const int16x8_t words = vqmovn_high_s32(vqmovn_s32(round_clamped(t0, e)), round_clamped(t1, e));
  store_codes(static_cast<uint8_t*>(y), vqmovun_s16(vaddq_s16(words, vdupq_n_s16(static_cast<int16_t>(e.zero_point)))),
              channels);
}

/// Sets the accumulators of a tile, four channels each, to their start values.
template <int kRows, int kVectors>
OCTET_ALWAYS_INLINE void start_tile(const GemmTile& tile, int32x4_t (&acc)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int n = 0; n < kVectors; ++n) {
    const int32x4_t init = vld1q_s32(tile.init + 4 * n);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) acc[m][n] = init;
  }
}

/// Writes a tile's accumulators, four channels each, as codes or floats. The accumulators go through memory, so that
/// this is a plain loop.
template <int kRows, int kVectors>
OCTET_ALWAYS_INLINE void finish_tile(const GemmTile& tile, const int32x4_t (&acc)[kRows][kVectors]) {
  const Epilogue& e = *tile.epilogue;
  const int element = e.float_output ? sizeof(float) : 1;
  int32x4_t done[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) done[m][n] = acc[m][n];
  }
#pragma GCC unroll 1
  for (int n = 0; n < kVectors; n += 2) {
    const int channel = 4 * n;
    if (channel >= tile.channels) break;
#pragma GCC unroll 1
    for (int m = 0; m < kRows; ++m) {
      const uint8_t* residual = e.has_residual ? tile.residual + m * tile.residual_stride + channel : nullptr;
      finish8(e, done[m][n], done[m][n + 1], tile.multiplier + channel, tile.bias + channel, residual,
              static_cast<uint8_t*>(tile.y) + (m * tile.y_stride + channel) * element, tile.channels - channel);
    }
  }
}

/// Returns what the paths of aarch64 have in common; channels are in order.
[[maybe_unused]] GemmKernels neon_tiles(const char* isa, int k_group, int rows, int width) {
  GemmKernels k;
  k.isa = isa;
  k.k_group = k_group;
  k.activation_bytes = 1;
  k.lanes = kLanes;
  k.width = k.flat_width = width;
  k.rows = k.flat_rows = rows;
  for (int slot = 0; slot < 2 * kLanes; ++slot) k.pair_order[slot] = static_cast<uint8_t>(slot);
  return k;
}

}  // namespace
}  // namespace octet::kernels
