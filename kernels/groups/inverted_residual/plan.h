// SPDX-License-Identifier: Apache-2.0
// How the work of an inverted residual is divided among thread blocks, the layout of packed data and of shared memory,
// and the rounding of hidden codes. Plain data, shared by packing, choosing and the kernels.
//
// Two kernels compute inverted residuals: in kernel.cuh a thread block computes one tile; in turns.cuh it computes
// several tiles one after the other ("in turns") and keeps weights and positions in between.
#pragma once

#include <cstdint>

#include "kernels/conv/cuda/rounding.h"
#include "kernels/core/divide.h"
#include "kernels/groups/groups.h"

namespace octet::kernels {

inline constexpr int kHiddenChunk = 32;  ///< hidden channels that are computed at once: two planes of 16
inline constexpr int kMaxWarps = 8;      ///< warps of a thread block
inline constexpr int kMaxParts = 8;      ///< blocks of a cluster; larger clusters are not portable
inline constexpr int kUnitBytes = 2048;  ///< bytes of the sums of 16 pixels x 32 channels

/// The numbers of output channels that kernels are compiled for, in quads of 32 channels, one source each, which CMake
/// writes (octet_instantiations() in cmake/kernel_sources.cmake); the second list is for kernels in turns.
inline constexpr int kInvertedQuads[] = {1, 2, 3, 5};
inline constexpr int kInvertedTurnsQuads[] = {1, 2};

/// Returns the smallest of kInvertedQuads that holds the output channels, or 0 if there are too many.
constexpr int inverted_quads(int out_c) {
  for (const int quads : kInvertedQuads) {
    if (out_c <= quads * 32) return quads;
  }
  return 0;
}

/// Returns the maximum rows of a warp: a row takes 16 registers for every 32 channels.
constexpr int inverted_max_rows(int quads) { return quads == 1 ? 4 : quads <= 3 ? 2 : 1; }

/// Returns whether a kernel in turns is compiled for this number of rows.
constexpr bool inverted_takes_turns(int rows, int out_c) {
  for (const int quads : kInvertedTurnsQuads) {
    if (out_c <= quads * 32) return rows <= inverted_max_rows(quads);
  }
  return false;
}

/// Returns how many buffers of hidden codes (without expand, of x) a block in turns has: while one is read, the next is
/// computed, or the next two are copied.
constexpr int inverted_turn_buffers(bool has_expand) { return has_expand ? 2 : 3; }

/// Returns how many images a tile in turns spans. With expand it is a pair: the same pixel of both images is two
/// neighbouring words, which one load brings as half a fragment of the depthwise product.
constexpr int inverted_turn_images(bool has_expand) { return has_expand ? 2 : 1; }

inline constexpr int kPlaceBytes = 64;  ///< shared memory for the InvertedPlace of a block in turns
inline constexpr int kTurnUnits = 32;   ///< most units of eight pixels that a warp expands in turns: bits of a word

/// Returns the byte, in a chunk of hidden channels, of column `column` of a depthwise product. A pixel's 16 bytes of a
/// plane are two halves of two words. A product takes one word of each half (`pair`), which are eight channels: column
/// n is byte n % 4 of half n / 4.
constexpr int hidden_byte(int plane, int pair, int column) {
  return plane * 16 + column / 4 * 8 + pair * 4 + column % 4;
}
/// Returns the byte of column `column` in block `block` of eight columns of the expanding product, by which a thread's
/// columns are eight contiguous bytes.
constexpr int expanded_byte(int block, int column) { return column / 2 * 8 + block * 2 + column % 2; }
/// Returns the byte for row k (of 32) of the narrowing product, by which the codes that a thread computes are its
/// fragment without any exchange.
constexpr int narrowed_byte(int k) { return hidden_byte(k / 16, k % 4 / 2, k % 16 / 4 * 2 + k % 2); }
/// Returns the output channel of column `column` in block `block` of eight columns, by which a thread's columns are
/// eight neighbouring channels.
constexpr int output_channel(int block, int column) {
  return block / 4 * 32 + column / 2 * 8 + block % 4 * 2 + column % 2;
}

/// Returns the bytes of multiplier, bias and start values of hidden channels; start values are stored twice.
constexpr int hidden_constants_bytes(int channels) { return channels * 16; }

/// The layout of a packed chunk of hidden channels, in bytes. Weights are fragments of two blocks of 8 columns, 16
/// bytes per lane. The weights of expand come first: [k_steps][2][lane].
struct InvertedChunk {
  int k_steps;              ///< steps of 32 input channels; 0 without expand
  int depthwise, project;   ///< weights [plane][window row][lane]; [quads][2][lane]
  int expand_constants;     ///< multiplier, bias [32], start values [16][2][2], by byte
  int depthwise_constants;  ///< for each plane those of 16 channels in the order of threads: column / 2, pair, column %
                            ///< 2
  int bytes;                ///< size of a chunk

  explicit InvertedChunk(const InvertedResidual& block)
      : k_steps(block.has_expand ? ceil_div(block.expand.shape.in_c, 32) : 0),
        depthwise(k_steps * 1024),
        project(depthwise + 6 * 512),
        expand_constants(project + inverted_quads(block.project.shape.out_c) * 1024),
        depthwise_constants(expand_constants + hidden_constants_bytes(kHiddenChunk)),
        bytes(depthwise_constants + hidden_constants_bytes(kHiddenChunk)) {}
};

/// How an alternative divides the output into tiles.
struct InvertedTiles {
  int height, halo_h, halo_w;  ///< rows of a tile; rows and columns of the input that it reads
  int across, down, groups;    ///< tiles of an image; groups of images
  int positions, warps;        ///< columns of `rows` rows in a tile, of which a warp of each group has 16
  int chunks;                  ///< chunks of hidden channels

  InvertedTiles(const CudaInvertedResidual& choice, const InvertedResidual& block, int images);
  int tiles() const { return across * down * groups; }
};

/// The layout of a thread block's shared memory, in bytes. For each group the weights of two chunks, in alternation,
/// come first.
///
/// Blocks in turns hold the weights of all chunks, the input of two tiles with pixels in the order of the halo, and
/// inverted_turn_buffers() buffers of hidden codes. The hidden codes of a pair of images are four planes of eight
/// channels: `pair` 0 of each 16 channels, then `pair` 1. A pixel's 16 bytes are the words of both images for each
/// half.
struct InvertedShared {
  int x_pitch;  ///< bytes from pixel to pixel of x: an odd multiple of 16, so that ldmatrix has no bank conflicts
  int x_swap;   ///< 1: the two 16 bytes of a pixel are exchanged in every second four pixels, for the same reason
  int x, hidden, plane;   ///< input pixels; hidden codes; bytes of one of their planes
  int positions;          ///< positions of input pixels in a plane; in turns, the InvertedPlace
  int units;              ///< in turns: units of eight pixels in the halo
  int x_image, x_buffer;  ///< in turns: bytes of an image's input, and of a tile's
  int gathered;           ///< in a cluster: the sums that its blocks write here, [units of this block][parts]
  int bytes;              ///< size of the shared memory

  InvertedShared(const CudaInvertedResidual& choice, const InvertedResidual& block, int images);
};

/// Returns whether blocks can run this alternative in turns: all weights must fit in shared memory, for one.
bool inverted_turns_fit(const CudaInvertedResidual& choice, const InvertedResidual& block, int images,
                        int shared_limit);

/// An alternative and the clocks that a model estimates for it.
struct RankedTile {
  double clocks;
  CudaInvertedResidual tile;
};

/// Returns all alternatives that fit, the likely fastest first.
std::vector<RankedTile> inverted_ranking(const InvertedResidual& block, int images, const CudaGpu& gpu);

/// Returns what is added to the codes of a tensor while they are held on the chip ("held codes", always uint8): 128 for
/// int8. Behind ReLU the highest code becomes 255, so that packing clamps to it. Zero points are shifted alike.
inline int held_shift(const CodeInput& x) { return x.is_signed ? 128 : 0; }
inline int held_shift(const CodeOutput& y) {
  return y.clamp_min == y.zero_point ? 255 - y.clamp_max : y.is_signed ? 128 : 0;
}

/// Returns the shift of the codes that the depthwise convolution reads.
inline int windows_shift(const InvertedResidual& block) {
  return block.has_expand ? held_shift(block.expand.params.y) : held_shift(block.depthwise.params.x);
}

/// Rounds values of t * kStepScale to held codes, in steps (StepRounding in rounding.h), with any zero point and clamp.
struct CodeSteps {
  float by, plus;   ///< steps = fma(t * kStepScale, by, plus), counted from code 0, or down from 255 if the zero point
                    ///< is odd, because a tie goes to an even number of steps
  uint32_t flip;    ///< turns four numbers of steps into codes
  float low, high;  ///< clamp bounds of t * kStepScale
  bool relu;        ///< whether the lowest code is real 0

  explicit CodeSteps(const CodeOutput& out) {
    const int zero = out.zero_point + held_shift(out);
    const bool from_end = zero % 2 != 0;
    by = from_end ? -0x1p-133f : 0x1p-133f;
    plus = __builtin_bit_cast(float, from_end ? 255 - zero : zero);
    flip = from_end ? 0xFFFFFFFFu : 0u;
    low = static_cast<float>(out.clamp_min - out.zero_point) * kStepScale;
    high = static_cast<float>(out.clamp_max - out.zero_point) * kStepScale;
    relu = out.clamp_min == out.zero_point;
  }

#if defined(__CUDACC__)
  /// Returns the held codes of four values. With kRelu no value may be below 0.
  template <bool kRelu>
  __device__ __forceinline__ uint32_t word(float a, float b, float c, float d) const {
    return saturate_to_bytes(steps<kRelu>(a), steps<kRelu>(b), steps<kRelu>(c), steps<kRelu>(d)) ^ flip;
  }

 private:
  /// Returns a number of steps that has yet to saturate to a byte: below 0 the sign bit is set, above 255 order is
  /// kept.
  template <bool kRelu>
  __device__ __forceinline__ int32_t steps(float scaled) const {
    if constexpr (!kRelu) scaled = fminf(fmaxf(scaled, low), high);
    return __float_as_int(fmaf(scaled, by, plus));
  }
#endif
};

}  // namespace octet::kernels
