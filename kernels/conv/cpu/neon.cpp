// SPDX-License-Identifier: Apache-2.0
// The micro-kernels that every aarch64 processor can run: the matrix product (for Cortex-A53, A72 and others without
// SDOT), depthwise convolutions and look-ups.
//
// Codes are made signed, x - 128, by flipping their top bit; start values hold the difference. Two products of x - 128
// >= -128 and w >= -127 fit int16, so SMULL and SMLAL add two before they are widened.
#include "kernels/conv/cpu/neon_tiles.h"

namespace octet::kernels {
namespace {

// The matrix product: a tile of 2 pixels x 8 channels, 16 accumulators of the four partial sums of one output each. Per
// step, 16 k: for each output SMULL and SMLAL2's products of 8 k each, and SADALP, which adds neighbours to int32.

constexpr int kTileRows = 2;

/// Returns 8 codes, signed, in both halves.
OCTET_ALWAYS_INLINE int8x16_t signed_codes(const uint8_t* from) {
  const uint8x8_t codes = veor_u8(vld1_u8(from), vdup_n_u8(0x80));
  return vreinterpretq_s8_u8(vcombine_u8(codes, codes));
}

template <int kRows>
void gemm(const GemmTile& tile) {
  int32x4_t part[kRows][kLanes];
#pragma GCC unroll 8
  for (int n = 0; n < kLanes; ++n) {
#pragma GCC unroll 2
    for (int m = 0; m < kRows; ++m) part[m][n] = vdupq_n_s32(0);
  }
  const int8_t* w = tile.w;
  const uint8_t* a = tile.a;
  int steps = tile.k_steps;
  for (; steps >= 2; steps -= 2, a += 16, w += 16 * kLanes) {
    int8x16_t x[kRows], next[kRows];
#pragma GCC unroll 2
    for (int m = 0; m < kRows; ++m) {
      x[m] = signed_codes(a + m * tile.a_stride);
      next[m] = signed_codes(a + m * tile.a_stride + 8);
    }
#pragma GCC unroll 4
    for (int n = 0; n < kLanes; n += 2) {
      const int8x16_t two = vld1q_s8(w + 8 * n), next_two = vld1q_s8(w + 8 * kLanes + 8 * n);
#pragma GCC unroll 2
      for (int m = 0; m < kRows; ++m) {
        const int16x8_t first = vmull_s8(vget_low_s8(two), vget_low_s8(x[m])), second = vmull_high_s8(two, x[m]);
        part[m][n] = vpadalq_s16(part[m][n], vmlal_s8(first, vget_low_s8(next_two), vget_low_s8(next[m])));
        part[m][n + 1] = vpadalq_s16(part[m][n + 1], vmlal_high_s8(second, next_two, next[m]));
      }
    }
  }
  if (steps > 0) {
#pragma GCC unroll 2
    for (int m = 0; m < kRows; ++m) {
      const int8x8_t x = vget_low_s8(signed_codes(a + m * tile.a_stride));
#pragma GCC unroll 8
      for (int n = 0; n < kLanes; ++n) part[m][n] = vpadalq_s16(part[m][n], vmull_s8(vld1_s8(w + 8 * n), x));
    }
  }
  int32x4_t acc[kRows][2];
  start_tile(tile, acc);
#pragma GCC unroll 2
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      const int32x4_t* four = part[m] + 4 * n;
      const int32x4_t sums = vpaddq_s32(vpaddq_s32(four[0], four[1]), vpaddq_s32(four[2], four[3]));
      acc[m][n] = vaddq_s32(acc[m][n], sums);
    }
  }
  finish_tile(tile, acc);
}

GemmKernels make_gemm_kernels() {
  GemmKernels k = neon_tiles("neon", 8, kTileRows, 1);
  k.code_offset = 128;
  k.kernel[0][0] = gemm<1>;
  k.kernel[0][1] = gemm<2>;
  return k;
}

// Depthwise convolution: 16 channels with two taps of each at a time.

constexpr int kSlots = 16;
constexpr int kPair = 2;

/// Computes kPixels neighbouring pixels, which share the loads of weights.
template <int kPixels>
OCTET_ALWAYS_INLINE void run_neighbours(const DepthwiseRun& run, int pixel) {
  int32x4_t acc[kPixels][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 2
    for (int p = 0; p < kPixels; ++p) acc[p][i] = vld1q_s32(run.init + 4 * i);
  }
  const uint8_t* const* taps = run.taps + pixel * run.tap_step;
  const uint8x16_t flip = vdupq_n_u8(0x80);
  for (int g = 0; g < run.tap_groups; ++g, taps += kPair) {
    const int8x16x2_t w = vld2q_s8(run.w + g * kSlots * kPair);
#pragma GCC unroll 2
    for (int p = 0; p < kPixels; ++p) {
      const uint8_t* const* from = taps + p * run.tap_step;
      const ptrdiff_t at = run.channel + (pixel + p) * run.pixel_step;
      const int8x16_t a = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from[0] + at), flip));
      const int8x16_t b = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from[1] + at), flip));
      const int16x8_t low =
          vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(w.val[0])), vget_low_s8(b), vget_low_s8(w.val[1]));
      const int16x8_t high = vmlal_high_s8(vmull_high_s8(a, w.val[0]), b, w.val[1]);
      acc[p][0] = vaddw_s16(acc[p][0], vget_low_s16(low));
      acc[p][1] = vaddw_high_s16(acc[p][1], low);
      acc[p][2] = vaddw_s16(acc[p][2], vget_low_s16(high));
      acc[p][3] = vaddw_high_s16(acc[p][3], high);
    }
  }
  int32x4_t done[kPixels][4];  // in memory, so that what follows is a plain loop
#pragma GCC unroll 2
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) done[p][i] = acc[p][i];
  }
#pragma GCC unroll 1
  for (int p = 0; p < kPixels; ++p) {
    uint8_t* y = run.y + (pixel + p) * run.y_stride;
    const uint8_t* residual = run.residual == nullptr ? nullptr : run.residual + (pixel + p) * run.residual_stride;
    for (int channel = 0; channel < kSlots && channel < run.channels; channel += kLanes) {
      const int i = channel / 4;
      finish8(*run.epilogue, done[p][i], done[p][i + 1], run.multiplier + channel, run.bias + channel,
              residual == nullptr ? nullptr : residual + channel, y + channel, run.channels - channel);
    }
  }
}

void run_pixels(const DepthwiseRun& run) {
  int pixel = 0;
  for (; pixel + 2 <= run.pixels; pixel += 2) run_neighbours<2>(run, pixel);
  if (pixel < run.pixels) run_neighbours<1>(run, pixel);
}

DepthwiseKernels make_depthwise_kernels() {
  DepthwiseKernels k;
  k.isa = "neon";
  k.slots = k.channels = kSlots;
  k.tap_group = kPair;
  k.code_offset = 128;
  for (int slot = 0; slot < kSlots; ++slot) k.order[slot] = static_cast<uint8_t>(slot);
  k.run = run_pixels;
  return k;
}

}  // namespace

const GemmKernels& neon_gemm_kernels() {
  static const GemmKernels kernels = make_gemm_kernels();
  return kernels;
}

const DepthwiseKernels& neon_depthwise_kernels() {
  static const DepthwiseKernels kernels = make_depthwise_kernels();
  return kernels;
}

void neon_lookup(const uint8_t* table, const uint8_t* x, long count, uint8_t* y) {
  constexpr int kVectors = 4;  // share the loads of the table, whose quarters take four registers each
  long i = 0;
  for (; i + 16 * kVectors <= count; i += 16 * kVectors) {
    uint8x16_t at[kVectors], found[kVectors];
    for (int v = 0; v < kVectors; ++v) at[v] = vld1q_u8(x + i + 16 * v), found[v] = vdupq_n_u8(0);
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8x16x4_t entries = vld1q_u8_x4(table + 64 * quarter);
      for (int v = 0; v < kVectors; ++v) {
        found[v] = vqtbx4q_u8(found[v], entries, at[v]);  // an index beyond the quarter keeps what was found
        at[v] = vsubq_u8(at[v], vdupq_n_u8(64));
      }
    }
    for (int v = 0; v < kVectors; ++v) vst1q_u8(y + i + 16 * v, found[v]);
  }
  for (; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace octet::kernels
