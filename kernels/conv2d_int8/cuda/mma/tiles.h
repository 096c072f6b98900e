// The tiles of the mma convolution kernels. Plain data, shared by packing, choosing and the kernels.
#pragma once

#include <array>
#include <cstddef>

namespace octet::kernels {

/// How one thread block cuts its part out of the matrix product: pixels x channels, in steps of block_k bytes of the
/// sum. The block's warps stand in a grid of warps_m x warps_n, of which warps_k share each part: a warp multiplies
/// every warps_k-th 32 bytes of the sum, and the parts are added up in shared memory. Sums become short where tiles are
/// small.
struct MmaTile {
  int block_m, block_n, block_k;
  int warps_m, warps_n;
  int stages;      ///< block_k steps in flight, each with its own piece of shared memory
  int min_blocks;  ///< blocks a multiprocessor must have room for; bounds the registers
  int warps_k = 1;
  bool operator==(const MmaTile&) const = default;

  constexpr int threads() const { return 32 * warps_m * warps_n * warps_k; }
  constexpr int warp_m() const { return block_m / warps_m; }
  constexpr int warp_n() const { return block_n / warps_n; }
  constexpr int row_chunks() const { return block_k / 16; }  ///< 16-byte chunks in a row of a stage
  constexpr int stage_bytes() const { return (block_m + block_n) * block_k; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
};

/// Shared memory that every GPU since compute capability 8.0 gives a block, less what a kernel has besides its tile's.
inline constexpr int kMmaSharedBytes = 99 * 1024 - 128;

/// What the parts of a sum take besides MmaTile::shared_bytes() where they are computed by the blocks of a cluster: the
/// sums of a tile from each part but the first.
constexpr int mma_cluster_bytes(const MmaTile& tile, int parts) {
  return (parts - 1) * tile.block_m * tile.block_n * 4;
}

/// Whether blocks of this tile that compute so many parts of a sum can be a cluster: eight are what every GPU with
/// clusters has.
constexpr bool mma_cluster_fits(const MmaTile& tile, int parts) {
  return parts <= 8 && tile.shared_bytes() + mma_cluster_bytes(tile, parts) <= kMmaSharedBytes;
}

// Warps of 64 x 64 read the least shared memory per product, and many small blocks hide latency on small grids.
inline constexpr std::array<MmaTile, 16> kMmaTiles = {{
    {256, 128, 64, 4, 2, 4, 1},
    {128, 256, 64, 2, 4, 4, 1},
    {128, 128, 64, 2, 2, 4, 2},
    {128, 128, 128, 2, 2, 3, 2},
    {256, 64, 64, 4, 1, 4, 2},
    {128, 64, 64, 2, 2, 4, 3},
    {64, 128, 64, 2, 2, 4, 3},
    {64, 64, 64, 2, 2, 4, 4},
    {64, 64, 128, 2, 2, 3, 4},
    {128, 32, 64, 4, 1, 4, 4},
    {64, 32, 128, 2, 2, 4, 4},
    {32, 64, 128, 2, 2, 4, 4},
    {32, 32, 128, 2, 2, 4, 4},
    {32, 32, 128, 2, 1, 6, 3, 2},
    {32, 32, 256, 1, 1, 4, 2, 4},
    {32, 64, 256, 1, 2, 3, 2, 4},
}};

/// Where chunk `chunk` of row `row` stands within its row of shared memory: eight rows at one chunk, which one ldmatrix
/// reads, fall into eight different groups of banks.
constexpr int mma_swizzle(int block_k, int row, int chunk) { return chunk ^ (block_k == 64 ? row / 2 % 4 : row % 8); }

/// The row of a tile of weights that holds channel `channel` of the tile. An mma gives a thread of each quad columns
/// 2 i and 2 i + 1 of every 8; the permutation makes these neighbouring channels, so that the thread writes its
/// warp_n/4 output codes of a pixel as one word.
constexpr int mma_weight_row(const MmaTile& tile, int channel) {
  const int warp = channel / tile.warp_n(), lane = channel % tile.warp_n(), per_thread = tile.warp_n() / 4;
  const int quad_thread = lane / per_thread, i = lane % per_thread;
  return warp * tile.warp_n() + i / 2 * 8 + quad_thread * 2 + i % 2;
}

}  // namespace octet::kernels
