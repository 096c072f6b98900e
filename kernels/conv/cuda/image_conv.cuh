// SPDX-License-Identifier: Apache-2.0
// The kernel of image_conv.cu. Include it in .cu files only.
//
// A block keeps the weights of its warps in registers and iterates over tiles of 16 x 16 output pixels. The tile's part
// of the image, with padding filled in, is copied to shared memory while the previous tile is computed. The words of an
// operand are read from there with any stride or dilation. Columns a stride apart are stored next to each other, so
// that neighbouring pixels read neighbouring words without bank conflicts. The columns of the weight operand are
// permuted so that a thread ends with eight neighbouring channels of a pixel.
#pragma once

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/conv/cuda/rounding.h"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {

inline constexpr int kImageWarps = 4, kImageThreads = 32 * kImageWarps;
inline constexpr int kImageTile = 16;       // output rows and columns of a tile; the rows of an mma are a row of pixels
inline constexpr int kImageChannels = 32;   // channels of a warp: four mma
inline constexpr int kImagePixelCodes = 8;  // neighbouring channels that a thread ends with

/// How codes are rounded: as everywhere, or in steps (rounding.h), where constants are multiplied by kStepScale.
enum class ImageRounding { plain, steps, limited_steps };

/// Returns whether sums of so few products can start from the bits of 1.5 * 2^23: their own bits are then the float
/// 1.5 * 2^23 + sum, which is exact within +- 2^22.
constexpr bool image_sums_are_floats(int fours) { return fours * 4 * 4 * 255 * 128 < 1 << 22; }

/// Returns for how many blocks a multiprocessor has registers.
constexpr int image_blocks(int fours, int rows) { return fours > 7 ? 3 : fours > 3 || rows > 1 ? 4 : 5; }

struct ImageArgs {
  PackedRounding rounding;
  StepRounding steps;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const int4* start;    ///< [channels / 2]: start values of the sums of two channels of two pixels
  const uint4* weight;  ///< [channels / 32][fours][32 lanes]: one word for each of a warp's four mma
  const uint32_t* x;
  uint8_t* y;
  uint32_t padding;  ///< four codes of real 0
  int in_h, in_w, out_h, out_w, out_c, out_stride;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, taps;
  FastDivide by_kernel_w, by_stride_w, by_in_columns, by_tiles_w, by_tiles_h;
  int tiles;                       ///< tiles of the batch
  int in_rows, in_columns;         ///< size of a tile's part of the image; at most as many columns as threads
  int copied_rows;                 ///< rows that the block copies at once
  int copied_bytes, copied_words;  ///< copied_rows in bytes of the image, and in words of shared memory
  int phase, pitch;                ///< words of the columns that are stride_w apart; words of a row
  int two_groups;                  ///< 1: the block computes 2 * kImageChannels channels, 0: half of that

  /// Returns the index of a column's word within a row of shared memory.
  __device__ __forceinline__ int word_of_column(int column) const {
    const int of_phase = by_stride_w.divide(column);
    return (column - of_phase * stride_w) * phase + of_phase;
  }
};

extern __shared__ uint32_t image_tiles[];  ///< [2][in_rows][pitch]

/// The image and the first output row and column of a tile.
struct ImageTile {
  int image, oy, ox;
  __device__ __forceinline__ ImageTile(const ImageArgs& a, int tile) {
    const int row = a.by_tiles_w.divide(tile);
    image = a.by_tiles_h.divide(row);
    oy = (row - image * static_cast<int>(a.by_tiles_h.divisor)) * kImageTile;
    ox = (tile - row * static_cast<int>(a.by_tiles_w.divisor)) * kImageTile;
  }
};

/// The part of each tile that a thread copies: rows `row`, row + copied_rows, ... of one column.
struct ImageCopy {
  int row, column, word;

  __device__ __forceinline__ explicit ImageCopy(const ImageArgs& a) {
    const int thread = static_cast<int>(threadIdx.x);
    row = a.by_in_columns.divide(thread);
    column = thread - row * a.in_columns;
    word = row * a.pitch + a.word_of_column(column);
    if (row >= a.copied_rows) row = a.in_rows;
  }
  /// Begins to copy a tile's part of the image.
  __device__ __forceinline__ void begin(const ImageArgs& a, const ImageTile& at, uint32_t* tile) const {
    const int top = at.oy * a.stride_h - a.pad_h, ix = at.ox * a.stride_w - a.pad_w + column;
    const unsigned height = static_cast<unsigned>(ix) < static_cast<unsigned>(a.in_w) ? a.in_h : 0;
    int iy = top + row;
    const uint8_t* from =
        reinterpret_cast<const uint8_t*>(a.x + (static_cast<ptrdiff_t>(at.image * a.in_h + iy) * a.in_w + ix));
    uint32_t to = shared_address(tile + word);
#pragma unroll 1
    for (; iy < top + a.in_rows; iy += a.copied_rows, from += a.copied_bytes, to += a.copied_words * 4) {
      copy_word_or_fill(to, from, static_cast<unsigned>(iy) < height, a.padding);
    }
    copy_async_commit();
  }
};

/// What a thread keeps of the 32 channels of its warp. An operand is two words of four taps; an odd last one is alone.
template <int kFours, bool kSigned, ImageRounding kRounding>
struct ImageWarp {
  static constexpr bool kSumsAreFloats = image_sums_are_floats(kFours);

  uint4 weight[kFours];
  int word[kFours];  ///< offset of this lane's tap of each four from the word of a pixel's first tap
  int4 start[4];
  float multiplier[kImagePixelCodes], bias[kImagePixelCodes];

  __device__ __forceinline__ ImageWarp(const ImageArgs& a, int group, int k, int lane) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      weight[i] = __ldg(a.weight + (group * kFours + i) * 32 + lane);
      // Taps past the last have weight 0; they read the last tap's word, which causes no bank conflict.
      const int tap = min(i * 4 + lane % 4, a.taps - 1), row = a.by_kernel_w.divide(tap);
      word[i] = row * a.dilation_h * a.pitch +
                a.word_of_column((tap - row * static_cast<int>(a.by_kernel_w.divisor)) * a.dilation_w);
    }
#pragma unroll
    for (int i = 0; i < kImagePixelCodes; i += 4) {
      const float4 m = *reinterpret_cast<const float4*>(a.constants.multiplier + k + i);
      const float4 b = *reinterpret_cast<const float4*>(a.constants.bias + k + i);
      multiplier[i] = m.x, multiplier[i + 1] = m.y, multiplier[i + 2] = m.z, multiplier[i + 3] = m.w;
      bias[i] = b.x, bias[i + 1] = b.y, bias[i + 2] = b.z, bias[i + 3] = b.w;
      start[i / 2] = a.start[(k + i) / 2], start[i / 2 + 1] = a.start[(k + i) / 2 + 1];
    }
  }
  /// Computes the sums of kRows rows of 16 pixels that are `distance` words apart. first: words of pixel lane / 4's
  /// first tap.
  template <int kRows>
  __device__ __forceinline__ void multiply(int32_t (&sum)[kRows][4][4], const uint32_t* first, int distance) const {
#pragma unroll
    for (int i = 0; i < kFours; i += 2) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const uint32_t* low = first + r * distance + word[i];
        const uint32_t* high = first + r * distance + word[i + 1 < kFours ? i + 1 : i];
        uint32_t codes[4] = {low[0], low[8], 0, 0};
        if (i + 1 < kFours) codes[2] = high[0], codes[3] = high[8];
        const uint4 w = weight[i], v = weight[i + 1 < kFours ? i + 1 : i];
        const uint32_t b[4][2] = {{w.x, v.x}, {w.y, v.y}, {w.z, v.z}, {w.w, v.w}};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (i + 1 == kFours) {
            multiply_add_half<kSigned>(sum[r][j], {codes[0], codes[1]}, b[j][0]);
          } else if (i == 0) {
            multiply_from<kSigned>(sum[r][j], codes, b[j][0], b[j][1], start[j]);
          } else {
            multiply_add<kSigned>(sum[r][j], codes, b[j][0], b[j][1]);
          }
        }
      }
    }
  }
  /// Returns the codes of pixel lane / 4 + 8 half.
  __device__ __forceinline__ uint2 codes(const ImageArgs& a, const int32_t (&sum)[4][4], int half) const {
    uint32_t word[2];
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      float t[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t s = sum[four * 2 + i / 2][half * 2 + i % 2];
        const float value =
            kSumsAreFloats ? __int_as_float(s) - FastRounding::kRoundingConstant : static_cast<float>(s);
        t[i] = fmaf(value, multiplier[four * 4 + i], bias[four * 4 + i]);
      }
      if constexpr (kRounding == ImageRounding::plain) {
        word[four] = a.rounding(t[0], t[1], t[2], t[3]);
      } else {
        word[four] = a.steps.word<kRounding == ImageRounding::limited_steps>(t);
      }
    }
    if constexpr (kRounding == ImageRounding::plain) a.rounding.finish(word);
    return {word[0], word[1]};
  }
};

/// Computes the convolution; a warp computes kRows rows of a tile at once.
template <int kFours, int kRows, bool kSigned, ImageRounding kRounding>
__global__ void __launch_bounds__(kImageThreads, image_blocks(kFours, kRows))
    image_conv_kernel(const __grid_constant__ ImageArgs a) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = (blockIdx.y << a.two_groups) + (warp & a.two_groups), warps = kImageWarps >> a.two_groups;
  const int first_row = warp >> a.two_groups;
  const int k = group * kImageChannels + lane % 4 * kImagePixelCodes;
  const int buffer_words = a.in_rows * a.pitch, distance = warps * a.stride_h * a.pitch;
  const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(a.out_w) * a.out_stride;

  const ImageWarp<kFours, kSigned, kRounding> mine(a, group, k, lane);
  const ImageCopy copy(a);
  int tile = blockIdx.x;
  ImageTile at(a, tile);
  wait_for_previous_kernel();
  copy.begin(a, at, image_tiles);

  for (int buffer = 0; tile < a.tiles; buffer ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this tile has arrived, and nobody reads the other buffer any more
    tile += gridDim.x;
    const ImageTile next(a, tile);
    if (tile < a.tiles) copy.begin(a, next, image_tiles + (buffer ^ 1) * buffer_words);
    const int rows = min(kImageTile, a.out_h - at.oy), ox = at.ox + lane / 4;
    // Channels past the last are padding lanes, which may hold anything.
    const int rows_of[2] = {k < a.out_c && ox < a.out_w ? rows : 0, k < a.out_c && ox + 8 < a.out_w ? rows : 0};
    uint8_t* to = a.y + (at.image * a.out_h + at.oy + first_row) * row_bytes + ox * a.out_stride + k;
    const uint32_t* first = image_tiles + buffer * buffer_words + first_row * a.stride_h * a.pitch + lane / 4;
#pragma unroll 1
    for (int row = first_row; row < rows; row += warps * kRows) {
      int32_t sum[kRows][4][4];
      mine.multiply(sum, first, distance);
      uint2 codes[kRows][2];
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) codes[i / 2][i % 2] = mine.codes(a, sum[i / 2], i % 2);
      if (a.lookup.wanted()) {
#pragma unroll
        for (int i = 0; i < 2 * kRows; ++i) {
          uint2& c = codes[i / 2][i % 2];
          c = {a.lookup.word(c.x), a.lookup.word(c.y)};
        }
      }
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        if (row + i / 2 * warps < rows_of[i % 2]) {
          *reinterpret_cast<uint2*>(to + i / 2 * warps * row_bytes + i % 2 * 8 * a.out_stride) = codes[i / 2][i % 2];
        }
      }
      first += kRows * distance, to += kRows * warps * row_bytes;
    }
    at = next;
  }
}

}  // namespace octet::kernels
