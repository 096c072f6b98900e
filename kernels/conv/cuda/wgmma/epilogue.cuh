// SPDX-License-Identifier: Apache-2.0
// Turns a group's sums into codes: adds the start value of each sum by the border of its window, then applies scale,
// bias, residual and rounding.
//
// Sums are [channels][pixels]. Of every 64 channels, warp `w` of a group has the 16 from 16 w on. Thread `lane` has
// channels lane / 4 * 2 and the next (wgmma_weight_row()), whose scales and biases it keeps, and of every 8 pixels
// lane % 4 * 2 and the next. Codes are written as rows of pixels, and the residual is read from rows, through matrices
// of 8 x 8 pairs of channels that are loaded and stored transposed. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/wgmma/args.cuh"
#include "kernels/conv/cuda/wgmma/ptx.cuh"

namespace octet::kernels {

/// Returns the first of a thread's two channels, of 64.
__device__ __forceinline__ int wgmma_channel() { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 * 2; }

/// Returns the first of a thread's two pixels, of 8.
__device__ __forceinline__ int wgmma_pixel() { return threadIdx.x % 4 * 2; }

/// Returns the start values of an output pixel.
__device__ __forceinline__ const int32_t* start_of(const WgmmaOutput& p, int pixel) {
  const BorderStarts& s = p.starts;
  const int image = p.by_image.divide(pixel), in_image = pixel - image * static_cast<int>(p.by_image.divisor);
  const int oy = p.by_row.divide(in_image), ox = in_image - oy * static_cast<int>(p.by_row.divisor);
  return s.start + (s.row_class[oy] * s.column_classes + s.column_class[ox]) * s.channels;
}

/// Adds the start values to complete sums. channel: the thread's first channel; pixel_of(i): the output pixel that is
/// pixel i of the tile, negative if there is none.
template <class Sums, class PixelOf>
__device__ __forceinline__ void add_starts(const WgmmaOutput& p, Sums& sums, int channel, const PixelOf& pixel_of) {
#pragma unroll
  for (int n = 0; n < Sums::kN; ++n) {
    asm volatile("" ::: "memory");  // limits the loads in flight, for which there are few registers
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const int32_t* start = p.starts.start;
      if (p.starts.row_class != nullptr) start = start_of(p, max(pixel_of(n * 8 + wgmma_pixel() + next), 0));
#pragma unroll
      for (int m = 0; m < Sums::kM; ++m) {
        const int2 from = *reinterpret_cast<const int2*>(start + channel + m * 64);
        int32_t(&sum)[4] = sums.value[m][n];
        sum[next] += from.x, sum[2 + next] += from.y;
      }
    }
  }
}

/// What is added to scaled sums, and how they are rounded. Each combination has its own code.
enum class Added { nothing, codes, codes_less_zero };
enum class Rounded { steps, limited_steps, otherwise };

/// Turns the sums of a thread's two channels of two pixels into a word of codes. added: the residual's word.
template <Added kAdded, Rounded kRounded>
__device__ __forceinline__ uint32_t finish_word(const WgmmaOutput& p, const int32_t (&sum)[4], const float2& multiplier,
                                                const float2& bias, uint32_t added) {
  float t[4] = {rescale(sum[0], multiplier.x, bias.x), rescale(sum[2], multiplier.y, bias.y),
                rescale(sum[1], multiplier.x, bias.x), rescale(sum[3], multiplier.y, bias.y)};
  if constexpr (kAdded != Added::nothing) {
    constexpr bool kZero = kAdded == Added::codes_less_zero;
    if constexpr (kZero) added ^= p.added.flip;
#pragma unroll
    for (int i = 0; i < 4; ++i) t[i] = fmaf(p.added.value<kZero>(added, i), p.added.multiplier, t[i]);
  }
  if constexpr (kRounded != Rounded::otherwise) {
    return p.steps.word<kRounded == Rounded::limited_steps>(t);
  } else {
    constexpr float kBack = 1 / kStepScale;
    uint32_t word[1] = {p.rounding(t[0] * kBack, t[1] * kBack, t[2] * kBack, t[3] * kBack)};
    p.rounding.finish(word);
    return word[0];
  }
}

/// The scales and biases of a thread's two channels, of 64.
struct WgmmaConstants {
  float2 multiplier, bias;
};

/// Finishes a warp's sums; the residual is read from `rows`, and codes are written there.
template <Added kAdded, Rounded kRounded, int kN>
__device__ __forceinline__ void finish_rows(const WgmmaOutput& p, const int32_t (&sums)[kN][4],
                                            const WgmmaConstants& constants, uint32_t rows) {
#pragma unroll
  for (int n = 0; n < kN; n += 4) {
    uint32_t words[4] = {};
    if constexpr (kAdded != Added::nothing) load_transposed(words, rows + n * 8 * 64);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = finish_word<kAdded, kRounded>(p, sums[n + i], constants.multiplier, constants.bias, words[i]);
    }
    store_transposed(rows + n * 8 * 64, words);
  }
}

/// Returns the address of the warp's 16 channels in row `lane` of the swizzled rows of 64 bytes at `rows`.
__device__ __forceinline__ uint32_t own_codes(uint32_t rows) {
  const int lane = threadIdx.x % 32, chunk = threadIdx.x / 32 % 4;
  return rows + lane * 64 + ((chunk ^ lane / 2 % 4) * 16);
}

template <Added kAdded, int kN>
__device__ __forceinline__ void finish_added(const WgmmaOutput& p, const int32_t (&sums)[kN][4],
                                             const WgmmaConstants& constants, uint32_t own) {
  if (!p.in_steps) {
    finish_rows<kAdded, Rounded::otherwise>(p, sums, constants, own);
  } else if (p.steps.max_steps < 255) {
    finish_rows<kAdded, Rounded::limited_steps>(p, sums, constants, own);
  } else {
    finish_rows<kAdded, Rounded::steps>(p, sums, constants, own);
  }
}

/// A look-up in shared memory: one table, or those of the warp's 16 channels, one after the other. Two of the 64 words
/// of a table share a bank, so a warp waits for two reads at most, where a gather through L1 took eight or nine cycles
/// and had wgmma's operands in its way.
struct SharedLookup {
  uint32_t table;

  template <int kOffset>
  __device__ __forceinline__ uint32_t code(uint32_t byte) const {
    uint32_t found;
    asm volatile("ld.shared.u8 %0, [%1 + %2];" : "=r"(found) : "r"(table + byte), "n"(kOffset));
    return found;
  }
  /// Returns the word with the four looked-up codes; the table of the next one is kApart bytes further on.
  template <int kFirst, int kApart>
  __device__ __forceinline__ uint32_t word(uint32_t codes) const {
    return pack_codes(code<kFirst>(codes & 255), code<kFirst + kApart>(codes >> 8 & 255),
                      code<kFirst + 2 * kApart>(codes >> 16 & 255), code<kFirst + 3 * kApart>(codes >> 24));
  }
};

/// Applies the look-up to a warp's codes, which it has just written to `own`, in place. This is a separate pass so that
/// networks without look-ups do not pay for it in registers. kApart: bytes from the table of a channel to the next.
template <int kApart, int kN>
__device__ __forceinline__ void look_up_rows(const SharedLookup& lookup, uint32_t own) {
  __syncwarp();
#pragma unroll 1
  for (int n = 0; n < kN; n += 4) {
    const uint4 v = load_shared(own + n * 8 * 64);
    store_shared(own + n * 8 * 64, {lookup.word<0, kApart>(v.x), lookup.word<4 * kApart, kApart>(v.y),
                                    lookup.word<8 * kApart, kApart>(v.z), lookup.word<12 * kApart, kApart>(v.w)});
  }
}

/// Finishes a warp's sums of 64 channels of a tile, [pixels / 8]. rows: the residual, if there is one, and afterwards
/// the codes, in rows of 64 bytes per pixel.
template <int kN>
__device__ __forceinline__ void finish_group(const WgmmaOutput& p, const int32_t (&sums)[kN][4],
                                             const WgmmaConstants& constants, const SharedLookup& lookup,
                                             uint32_t rows) {
  const uint32_t own = own_codes(rows);
  if (p.residual == nullptr) {
    finish_added<Added::nothing>(p, sums, constants, own);
  } else if (p.added.plain()) {
    finish_added<Added::codes>(p, sums, constants, own);
  } else {
    finish_added<Added::codes_less_zero>(p, sums, constants, own);
  }
  if (p.lookup.wanted()) {
    look_up_rows<0, kN>(lookup, own);
  } else if (p.channel_tables != nullptr) {
    look_up_rows<kWgmmaTableBytes, kN>(lookup, own);
  }
}

/// Copies the residual and the codes of a tile whose pixels are not contiguous in memory. A thread copies 16 channels
/// of every 32nd pixel.
template <int kPixels>
struct ScatteredRows {
  static constexpr int kRows = kPixels / 32;
  const WgmmaOutput& p;
  int channel;       ///< the thread's first channel
  int pixel[kRows];  ///< output pixels; negative: none
  uint4 codes[kRows];

  template <class PixelOf>
  __device__ __forceinline__ ScatteredRows(const WgmmaOutput& output, int first_channel, const PixelOf& pixel_of)
      : p(output), channel(first_channel + threadIdx.x % 4 * 16) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) pixel[i] = channel < p.out_c ? pixel_of(i * 32 + threadIdx.x % 128 / 4) : -1;
  }
  static __device__ __forceinline__ uint32_t place(uint32_t rows, int i) {
    const int row = threadIdx.x % 128 / 4, chunk = threadIdx.x % 4;
    return rows + (i * 32 + row) * 64 + (chunk ^ row / 2 % 4) * 16;
  }
  __device__ __forceinline__ void load_residual() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (pixel[i] >= 0)
        codes[i] = load_once(p.residual + static_cast<int64_t>(pixel[i]) * p.residual_stride + channel);
    }
  }
  __device__ __forceinline__ void put_residual(uint32_t rows) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) store_shared(place(rows, i), codes[i]);
  }
  __device__ __forceinline__ void store(uint32_t rows) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint4 v = load_shared(place(rows, i));
      if (pixel[i] >= 0) *reinterpret_cast<uint4*>(p.y + static_cast<int64_t>(pixel[i]) * p.out_stride + channel) = v;
    }
  }
};

}  // namespace octet::kernels
