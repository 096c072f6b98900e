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

/// Several groups of four warps multiply, each a tile of group_m pixels x block_n channels of its own, turn and turn
/// about: while one multiplies the others end their tiles. One more group copies. A block has a multiprocessor for
/// itself.
struct WgmmaTile {
  int group_m, block_n, block_k;  ///< block_k: bytes of a row in shared memory
  int groups;
  WgmmaMode mode;

  constexpr int threads() const { return (groups + 1) * 128; }
  /// Registers move from the group that copies to those that multiply.
  constexpr int registers() const { return groups == 2 ? 232 : groups == 3 ? 152 : 112; }
  constexpr int copier_registers() const { return groups == 2 ? 40 : groups == 3 ? 56 : 32; }
  constexpr bool streamed() const { return mode == WgmmaMode::streamed; }
  constexpr bool shifted() const { return mode == WgmmaMode::shifted; }
  /// A tile ends 64 channels after 64 channels: that many times, each in a place of so many bytes in shared memory.
  constexpr int parts() const { return block_n / 64; }
  constexpr int end_bytes() const { return group_m * 64; }
};

/// CudaConv2d::variant is an index. Of 30 that were measured on ResNet-50's layers (NOTES.md) those without which batch
/// 128 or batch 1 would take longer.
inline constexpr std::array<WgmmaTile, 7> kWgmmaTiles = {{
    {128, 128, 128, 2, WgmmaMode::streamed},
    {128, 128, 128, 2, WgmmaMode::held},
    {64, 128, 128, 3, WgmmaMode::streamed},
    {64, 128, 64, 3, WgmmaMode::held},
    {128, 64, 64, 3, WgmmaMode::held},
    {128, 64, 64, 3, WgmmaMode::shifted},
    {64, 64, 128, 4, WgmmaMode::shifted},
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

}  // namespace octet::kernels
