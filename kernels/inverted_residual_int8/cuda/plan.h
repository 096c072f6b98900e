// How the work of an inverted residual falls into thread blocks, and where things lie in packed data and in shared
// memory. Plain data, shared by packing, choosing and the kernels.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/ceil_div.h"
#include "kernels/inverted_residual_int8/cuda_inverted_residual_int8.h"

namespace octet::kernels {

inline constexpr int kHiddenChunk = 32;  ///< hidden channels that are computed at once: two planes of 16
inline constexpr int kMaxWarps = 8;      ///< of a thread block
inline constexpr int kMaxParts = 8;      ///< of a cluster; more would not be portable
inline constexpr int kUnitBytes = 2048;  ///< sums of 16 pixels x 32 channels

/// Channels of the output in groups of 32, as many as kernels are compiled for: 1, 2, 3 or 5; 0: more than any.
constexpr int inverted_quads(int out_c) {
  for (const int quads : {1, 2, 3, 5}) {
    if (out_c <= quads * 32) return quads;
  }
  return 0;
}

/// Of hidden codes, or of x where there is no expand, in blocks that take turns: one is written, or two are on their
/// way, while one is read.
constexpr int inverted_turn_buffers(bool has_expand) { return has_expand ? 2 : 3; }
inline constexpr int kPlaceBytes = 64;  ///< what such a block knows of the place of its tiles
/// A tile of such a block is of a pair of images where it expands: the same pixel of both is two neighbouring words,
/// half a fragment of the depthwise product, by one load.
constexpr int inverted_turn_images(bool has_expand) { return has_expand ? 2 : 1; }
inline constexpr int kTurnUnits = 32;  ///< of eight pixels that a warp expands of it, at most: a word has their bits

/// The most rows of a warp that leave registers for it: a row takes 16 registers for every 32 channels.
constexpr int inverted_max_rows(int quads) { return quads == 1 ? 4 : quads <= 3 ? 2 : 1; }

/// Whether there is a kernel for that many rows whose blocks take turns.
constexpr bool inverted_takes_turns(int rows, int out_c) {
  return out_c <= 64 && rows <= inverted_max_rows(inverted_quads(out_c));
}

/// Where the codes of a chunk of hidden channels lie. A pixel's 16 bytes of a plane are two halves of two words; a
/// depthwise product takes one word of each half (`pair`), eight channels: column n is byte n % 4 of half n / 4.
constexpr int hidden_byte(int plane, int pair, int column) {
  return plane * 16 + column / 4 * 8 + pair * 4 + column % 4;
}
/// The byte of column `column` of the expanding product's columns 8 `block` and on: a thread's columns are eight bytes.
constexpr int expanded_byte(int block, int column) { return column / 2 * 8 + block * 2 + column % 2; }
/// The byte that row k of the narrowing product's 32 stands for: what a thread has computed is its fragment as it is.
constexpr int narrowed_byte(int k) { return hidden_byte(k / 16, k % 4 / 2, k % 16 / 4 * 2 + k % 2); }
/// The output channel of column `column` of columns 8 `block` and on: a thread's columns are eight channels.
constexpr int output_channel(int block, int column) {
  return block / 4 * 32 + column / 2 * 8 + block % 4 * 2 + column % 2;
}

/// multiplier and bias of so many hidden channels, and where their sums start: of two channels, twice.
constexpr int hidden_constants_bytes(int channels) { return channels * 16; }

/// What is packed of a chunk, bytes from its beginning. Weights are fragments: 16 bytes a lane, of two blocks of 8
/// columns.
struct InvertedChunk {
  int k_steps;              ///< of 32 input channels; 0 without expand
  int depthwise, project;   ///< [plane][window row][lane]; [32 channels][2][lane]; expand at 0: [k_steps][2][lane]
  int expand_constants;     ///< multiplier, bias [32], start of a sum [16][2][2], by byte
  int depthwise_constants;  ///< [plane] of 16 each, as threads hold them: column / 2, pair, column % 2
  int bytes;

  explicit InvertedChunk(const InvertedResidual& block)
      : k_steps(block.has_expand ? ceil_div(block.expand.shape.in_c, 32) : 0),
        depthwise(k_steps * 1024),
        project(depthwise + 6 * 512),
        expand_constants(project + inverted_quads(block.project.shape.out_c) * 1024),
        depthwise_constants(expand_constants + hidden_constants_bytes(kHiddenChunk)),
        bytes(depthwise_constants + hidden_constants_bytes(kHiddenChunk)) {}
};

/// Tiles of a choice.
struct InvertedTiles {
  int height, halo_h, halo_w;  ///< pixels of a tile; of what it reads
  int across, down, groups;    ///< tiles of an image; groups of images
  int positions, warps;        ///< columns of `rows` rows of a tile; a warp of each group has 16
  int chunks;                  ///< of hidden channels

  InvertedTiles(const CudaInvertedResidual& choice, const InvertedResidual& block, int images);
  int tiles() const { return across * down * groups; }
};

/// Shared memory of a thread block, bytes from its beginning; each group's chunks of weights, two in turn, come first.
///
/// Blocks that take turns have all chunks there; input of two tiles, pixels as the halo has them; hidden codes as often
/// as inverted_turn_buffers() says. Those of a pair are four planes of eight channels: `pair` 0 of either 16, then 1; a
/// pixel's 16 bytes are, of either half, the words of both images.
struct InvertedShared {
  int x_pitch;           ///< of a pixel's input channels: an odd number of 16 bytes, so that ldmatrix has no conflicts
  int x_swap;            ///< 1: a pixel's two times 16 bytes lie exchanged in every second four pixels, to the same end
  int x, hidden, plane;  ///< input pixels; hidden codes; bytes of one of their two planes
  int positions;         ///< of input pixels: where in a plane; in turns: the place
  int units;             ///< of eight pixels of the halo; in turns only, as the next two

  int x_image, x_buffer;  ///< bytes of an image's input, and of a tile's
  int gathered;           ///< in a cluster: sums that its blocks have written here, [units of this block][parts]
  int bytes;

  InvertedShared(const CudaInvertedResidual& choice, const InvertedResidual& block, int images);
};

/// Whether blocks can take turns with the tiles of a choice that says so: not where weights of all chunks do not fit.
bool inverted_turns_fit(const CudaInvertedResidual& choice, const InvertedResidual& block, int images,
                        int shared_limit);

/// All tiles that fit, with what a model says they take, in clocks: the least first.
struct RankedTile {
  double clocks;
  CudaInvertedResidual tile;
};
std::vector<RankedTile> inverted_ranking(const InvertedResidual& block, int images, const CudaGpu& gpu);

}  // namespace octet::kernels
