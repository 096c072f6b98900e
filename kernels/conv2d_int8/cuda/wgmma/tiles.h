// The tiles of the wgmma convolution kernels. Plain data, shared by packing, choosing and the kernels.
#pragma once

#include <array>

namespace octet::kernels {

/// What moves while a block goes through its tiles.
enum class WgmmaMode {
  streamed,  ///< input and weights
  held,      ///< only the input: the weights of the block's channels stay in shared memory
  shifted,   ///< the same, and each pixel once: a tap finds its pixels some rows further on in shared memory
};

/// Several groups of four warps multiply tiles of group_m pixels x block_n channels. Each has tiles of its own, turn
/// and turn about, so that while one multiplies the others end theirs; or all share a tile. One more group copies. A
/// block has a multiprocessor for itself.
struct WgmmaTile {
  int group_m, block_n, block_k;  ///< block_k: bytes of a row in shared memory
  int groups;
  WgmmaMode mode;
  /// Of each four weights two are kept (wgmma.sp). Only where shifted, with 64 channels and windows of 3 x 3: elsewhere
  /// it brought little (NOTES.md).
  bool sparse = false;
  /// Groups multiply one tile, each as many of its channels: fewer bytes come into shared memory for as many products,
  /// but nobody multiplies while a tile ends.
  bool shared = false;

  constexpr int threads() const { return (groups + 1) * 128; }
  /// Registers move from the group that copies to those that multiply.
  constexpr int registers() const { return groups == 2 ? 232 : groups == 3 ? 152 : 112; }
  constexpr int copier_registers() const { return groups == 2 ? 40 : groups == 3 ? 56 : 32; }
  /// Weights of a step, block_k input channels of a tap; where sparse with what tells which are kept.
  constexpr int step_bytes() const { return sparse ? block_n * block_k / 8 * 5 : block_n * block_k; }
  /// Of a row in shared memory, as sparse products take them.
  constexpr int slices() const { return block_k / 64; }
  constexpr bool streamed() const { return mode == WgmmaMode::streamed; }
  constexpr bool shifted() const { return mode == WgmmaMode::shifted; }
  /// Channels of a tile that a group multiplies.
  constexpr int group_n() const { return shared ? block_n / groups : block_n; }
  /// A group ends a tile 64 channels after 64 channels: that many times, each in a place of so many bytes in shared
  /// memory.
  constexpr int parts() const { return group_n() / 64; }
  constexpr int end_bytes() const { return group_m * 64; }
};

/// CudaConv2d::variant is an index. Of 35 dense and 10 sparse ones that were measured on ResNet-50's layers (NOTES.md)
/// those without which batch 128 or batch 1 would take longer.
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

/// Shared memory of a block: 227 KiB, of which the barriers and the way to a multiple of 1024 bytes take a little.
inline constexpr int kWgmmaMaxStages = 8, kWgmmaMaxEnds = 16, kWgmmaMaxChunks = 32;
inline constexpr int kWgmmaBarrierBytes = (4 + 2 * kWgmmaMaxStages + 3 * kWgmmaMaxEnds + kWgmmaMaxChunks) * 8;
inline constexpr int kWgmmaSharedBytes = 227 * 1024 - 1024 - kWgmmaBarrierBytes;

/// Row of a tile of weights that holds channel `channel`: of every 16 rows, a thread of a warp has the sums of two that
/// are 8 apart, which are neighbouring channels.
constexpr int wgmma_weight_row(int channel) {
  const int lane = channel % 16;
  return channel - lane + lane / 2 + lane % 2 * 8;
}

/// Sparse weights of a step lie in pieces of 64 channels by kWgmmaSlice input channels, slices() of them: the two kept
/// of each four. Behind them, for each thread of a group of warps, a word a piece: which two are kept of its part of a
/// row (wgmma_kept_thread()).
inline constexpr int kWgmmaSlice = 64, kWgmmaPieceBytes = 64 * kWgmmaSlice / 2;

/// Where kept weight `kept` (of 32) of row `row` (of 64) lies in a piece: eight rows of 16 bytes follow each other.
constexpr int wgmma_piece_byte(int row, int kept) { return (row / 8 * 2 + kept / 16) * 128 + row % 8 * 16 + kept % 16; }

/// The thread (of 128) that says what is kept in row `row` (of 64) of a piece, in half `half` of its columns, 32 each:
/// of each four columns four bits, the lower two the first kept one's place (PTX ISA, wgmma.mma_async.sp of 8-bit
/// integers: all four threads of a quad contribute).
constexpr int wgmma_kept_thread(int row, int half) { return row / 16 * 32 + row % 8 * 4 + half * 2 + row / 8 % 2; }

}  // namespace octet::kernels
