// SPDX-License-Identifier: Apache-2.0
// The wgmma family (Hopper, compute capability 9.0 only): its tiles, which convolutions it supports, how the work is
// divided into tiles, and the layout of packed data. Plain data, shared by packing, choosing, the kernels and their
// tests. CudaConv2d::variant is an index of kWgmmaTiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/conv/cuda/family.h"

namespace octet::kernels {

/// What a block copies to shared memory while it iterates over its tiles.
enum class WgmmaMode {
  streamed,  ///< input and weights
  held,      ///< only the input; the weights of the block's channels stay in shared memory
  shifted,   ///< as held, but each pixel is copied only once: a tap finds its pixels some rows further on
};

/// A tile of group_m pixels x block_n channels. Several groups of four warps multiply: either each group has its own
/// tiles and they take turns, so that while one multiplies the others finish theirs, or all share one tile. One more
/// group of warps copies. A block has a multiprocessor for itself.
struct WgmmaTile {
  int group_m, block_n, block_k;  ///< block_k: bytes of a row in shared memory
  int groups;
  WgmmaMode mode;
  /// Two of each four weights are kept (wgmma.sp). Only for shifted tiles of 64 channels with 3 x 3 windows; elsewhere
  /// it gained little (tools/lab/notebooks/conv.md).
  bool sparse = false;
  /// All groups multiply one tile, each an equal share of its channels: this copies fewer bytes for as many products,
  /// but no group multiplies while a tile is finished.
  bool shared = false;

  constexpr int threads() const { return (groups + 1) * 128; }
  /// Registers of a thread: the group that copies gives some of its registers to those that multiply.
  constexpr int registers() const { return groups == 2 ? 232 : groups == 3 ? 152 : 112; }
  constexpr int copier_registers() const { return groups == 2 ? 40 : groups == 3 ? 56 : 32; }
  /// Bytes of the weights of a step, which is block_k input channels of a tap; if sparse, with the metadata that tells
  /// which weights are kept.
  constexpr int step_bytes() const { return sparse ? block_n * block_k / 8 * 5 : block_n * block_k; }
  /// Slices of kWgmmaSlice bytes in a row of shared memory, for sparse products.
  constexpr int slices() const { return block_k / 64; }
  constexpr bool streamed() const { return mode == WgmmaMode::streamed; }
  constexpr bool shifted() const { return mode == WgmmaMode::shifted; }
  /// Channels of a tile that one group multiplies.
  constexpr int group_n() const { return shared ? block_n / groups : block_n; }
  /// A group finishes its tile in parts of 64 channels; each part needs end_bytes() of shared memory.
  constexpr int parts() const { return group_n() / 64; }
  constexpr int end_bytes() const { return group_m * 64; }
};

/// The tiles that kernels are compiled for: those of 35 dense and 10 sparse ones, measured on ResNet-50's layers
/// (tools/lab/notebooks/conv.md), without which batch 128 or batch 1 would take longer.
inline constexpr std::array<WgmmaTile, 11> kWgmmaTiles = {{
    {128, 128, 128, 2, WgmmaMode::streamed},
    {128, 128, 128, 2, WgmmaMode::held},
    {64, 128, 128, 3, WgmmaMode::streamed},
    {64, 128, 64, 3, WgmmaMode::held},
    {128, 64, 64, 3, WgmmaMode::held},
    {128, 64, 64, 3, WgmmaMode::shifted},
    {64, 64, 128, 4, WgmmaMode::shifted},
    {128, 64, 128, 3, WgmmaMode::shifted, true},
    {128, 64, 64, 3, WgmmaMode::shifted, true},
    {128, 64, 64, 2, WgmmaMode::shifted, true},
    {192, 128, 128, 2, WgmmaMode::streamed, false, true},
}};

/// The kernels of kWgmmaTiles are compiled in these parts, one source each, which CMake writes (octet_instantiations()
/// in cmake/kernel_sources.cmake): tile t is in part t % kWgmmaPartCount.
inline constexpr int kWgmmaParts[] = {0, 1, 2};
inline constexpr int kWgmmaPartCount = static_cast<int>(std::size(kWgmmaParts));

/// Shared memory of a block: 227 KiB, less the barriers, the table of a look-up and the alignment to 1024 bytes of an
/// address that is a multiple of kWgmmaAlignment.
inline constexpr int kWgmmaMaxStages = 8, kWgmmaMaxEnds = 16, kWgmmaMaxChunks = 32;
inline constexpr int kWgmmaBarrierBytes = (4 + 2 * kWgmmaMaxStages + 3 * kWgmmaMaxEnds + kWgmmaMaxChunks) * 8;
inline constexpr int kWgmmaAlignment = 32, kWgmmaTableBytes = 256;
inline constexpr int kWgmmaOtherBytes = kWgmmaBarrierBytes + kWgmmaTableBytes + 1024 - kWgmmaAlignment;
inline constexpr int kWgmmaSharedBytes = 227 * 1024 - kWgmmaOtherBytes;

/// Returns the row of a tile of weights that holds channel `channel`. Of every 16 rows a thread has the sums of two
/// that are 8 apart; the permutation makes these neighbouring channels.
constexpr int wgmma_weight_row(int channel) {
  const int lane = channel % 16;
  return channel - lane + lane / 2 + lane % 2 * 8;
}

/// The sparse weights of a step are slices() pieces of 64 channels by kWgmmaSlice input channels, with the two kept
/// weights of each four. They are followed, for each thread of a group of warps, by one word per piece that tells which
/// two are kept in the thread's part of a row (wgmma_kept_thread()).
inline constexpr int kWgmmaSlice = 64, kWgmmaPieceBytes = 64 * kWgmmaSlice / 2;

/// Returns the byte of kept weight `kept` (of 32) of row `row` (of 64) in a piece, in which eight rows of 16 bytes are
/// adjacent.
constexpr int wgmma_piece_byte(int row, int kept) { return (row / 8 * 2 + kept / 16) * 128 + row % 8 * 16 + kept % 16; }

/// Returns the thread (of 128) whose word describes row `row` (of 64) of a piece, in half `half` of its 64 columns.
/// Each four columns take four bits, of which the lower two are the position of the first kept weight (PTX ISA,
/// wgmma.mma_async.sp with 8-bit integers: all four threads of a quad contribute).
constexpr int wgmma_kept_thread(int row, int half) { return row / 16 * 32 + row % 8 * 4 + half * 2 + row / 8 % 2; }

/// How a convolution is divided into tiles, and the layout of shared memory. The sum runs over chunks of block_k input
/// channels and, within each chunk, over the taps.
struct WgmmaPlan {
  int m_tiles = 0, n_tiles = 0, chunks = 0, taps = 0;
  /// If shifted, the size of an image as its pixels are stored in a stage. It is padded only on the left and on top,
  /// since what a window reaches beyond the right side is the next row's padding.
  int padded_w = 0, padded_h = 0;
  int x_rows = 0, x_bytes = 0;  ///< rows and bytes of input in a stage
  int stage_bytes = 0;          ///< input, and the weights of a step if they are streamed
  int held_bytes = 0;           ///< weights that stay in shared memory
  /// Each group finishes its tiles in 2^ends_log buffers of end_bytes, into which their residual is copied before.
  int ends = 0, ends_log = 0, end_bytes = 0;
  int more_table_bytes = 0;  ///< with a table for each channel of a tile: behind kWgmmaTableBytes
  int stages = 0;            ///< stages that fit in the remaining memory; with fewer than 2 the tile cannot be used

  WgmmaPlan(const WgmmaTile& tile, const Conv2dShape& shape, int images, bool residual, bool channel_tables = false);
  int tiles() const { return m_tiles * n_tiles; }
  int shared_bytes() const {
    return held_bytes + stages * stage_bytes + ends * end_bytes + kWgmmaOtherBytes + more_table_bytes;
  }
};

/// Classes of output rows (or columns) by which taps of their windows lie inside the image. Outside the image, shared
/// memory holds 0 rather than the zero point, so the start of a sum, -(zero point of x) * sum(w), counts only taps
/// inside.
struct BorderClasses {
  static constexpr int kMaxTaps = 32, kMaxClasses = 32;
  std::vector<uint32_t> taps;      ///< for each class: bit r is set if tap r is inside
  std::vector<uint8_t> of_output;  ///< the class of each output row

  BorderClasses(int in, int out, int kernel, int stride, int pad, int dilation);
};

/// The layout of packed data behind the constants (family.h).
struct WgmmaPacked {
  BorderClasses rows, columns;
  int channels = 0;  ///< a multiple of block_n
  /// Byte offsets of: starts [row classes, column classes, channels] int32; the class of each output row and of each
  /// column, one byte each; weights [tiles of channels, chunks, taps, step_bytes()], in a dense tile [block_n,
  /// block_k], swizzled; the end.
  size_t starts = 0, row_class = 0, column_class = 0, weight = 0, bytes = 0;

  WgmmaPacked(const WgmmaTile& tile, const Conv2dShape& shape);
};

/// Returns whether pixel i of y reads only pixel i of x: 1x1, stride 1, no padding.
bool wgmma_is_dense(const Conv2dShape& shape);

/// Returns whether this family can run the convolution on a GPU of compute capability 9.0: one group, strides of 16
/// bytes, codes out, a window that tensor maps can express.
bool wgmma_supports(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, int images);

/// Returns whether at most two of each four consecutive input channels of a weight [K, R, S, C] are not 0, as sparse
/// tiles require.
bool wgmma_keeps_two_of_four(const Conv2dShape& shape, const int8_t* weight);

/// Returns whether this tile can run a convolution that wgmma_supports() accepts, if its weights are sparse enough.
bool wgmma_fits(const WgmmaTile& tile, const Conv2dShape& shape, int images, bool channel_tables = false);

/// Returns the alternative with this tile, named as wgmma_choices() does.
CudaConv2d wgmma_choice(int tile);

/// The functions of CudaConvFamily. wgmma_choices() offers sparse tiles if the weights are sparse enough; wgmma_pack()
/// throws Error(promise) if the tile is sparse and the weights are not.
void wgmma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
std::vector<uint8_t> wgmma_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                const Conv2dWeights& weights);

/// Appends the tiles for a convolution that writes tables[channel][code] in place of the code, and launches one.
/// tables: uint8 [out_c rounded up to 16, 256] on the device, aligned to 16 bytes; null for wgmma_choices()' tiles.
void wgmma_channel_lookup_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
void wgmma_channel_lookup(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                          const CudaConv2dData& data, const uint8_t* tables, CudaStream stream);

}  // namespace octet::kernels
