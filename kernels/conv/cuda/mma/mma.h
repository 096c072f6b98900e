// SPDX-License-Identifier: Apache-2.0
// The mma family: its tiles, which convolutions it supports, and how the work is divided into tiles. Plain data, shared
// by packing, choosing, the kernels and their tests. CudaConv2d::variant is an index of kMmaTiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/conv/cuda/family.h"
#include "kernels/core/divide.h"

namespace octet::kernels {

/// The part of the matrix product that one thread block computes: block_m pixels x block_n channels, in steps of
/// block_k bytes of the sum. The block's warps form a grid of warps_m x warps_n. With warps_k > 1, that many warps
/// share each place of the grid: each multiplies every warps_k-th 32 bytes of the sum, and the parts are added up in
/// shared memory, which shortens the sums of small tiles.
struct MmaTile {
  int block_m, block_n, block_k;
  int warps_m, warps_n;
  int stages;      ///< block_k steps in flight, each in its own part of shared memory
  int min_blocks;  ///< blocks that a multiprocessor must have room for; limits the registers
  int warps_k = 1;
  bool operator==(const MmaTile&) const = default;

  constexpr int threads() const { return 32 * warps_m * warps_n * warps_k; }
  constexpr int warp_m() const { return block_m / warps_m; }
  constexpr int warp_n() const { return block_n / warps_n; }
  constexpr int row_chunks() const { return block_k / 16; }  ///< 16-byte chunks in a row of a stage
  constexpr int stage_bytes() const { return (block_m + block_n) * block_k; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
};

/// The shared memory that a block may use for its tile on every GPU since compute capability 8.0.
inline constexpr int kMmaSharedBytes = 99 * 1024 - 128;

/// Returns the shared memory that the blocks of a cluster need in addition to MmaTile::shared_bytes() when each
/// computes a part of a sum: the sums of a tile from each part but the first.
constexpr int mma_cluster_bytes(const MmaTile& tile, int parts) {
  return (parts - 1) * tile.block_m * tile.block_n * 4;
}

/// Returns whether blocks of this tile that compute `parts` parts of a sum can be a cluster. Every GPU with clusters
/// supports eight blocks in one.
constexpr bool mma_cluster_fits(const MmaTile& tile, int parts) {
  return parts <= 8 && tile.shared_bytes() + mma_cluster_bytes(tile, parts) <= kMmaSharedBytes;
}

/// The tiles that kernels are compiled for. Warps of 64 x 64 read the least shared memory per product; many small
/// blocks hide latency on small grids.
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

/// The kernels of kMmaTiles are compiled in these parts, one source each, which CMake writes (octet_instantiations() in
/// cmake/kernel_sources.cmake): tile t is in part t % kMmaPartCount.
inline constexpr int kMmaParts[] = {0, 1, 2};
inline constexpr int kMmaPartCount = static_cast<int>(std::size(kMmaParts));

/// Returns the position of chunk `chunk` within row `row` of shared memory. One ldmatrix reads the same chunk of eight
/// rows, and these must lie in eight different groups of banks.
constexpr int mma_swizzle(int block_k, int row, int chunk) { return chunk ^ (block_k == 64 ? row / 2 % 4 : row % 8); }

/// Returns the row of a tile of weights that holds channel `channel` of the tile. An mma gives thread i of each quad
/// columns 2 i and 2 i + 1 of every 8. The permutation makes these neighbouring channels, so that the thread writes its
/// warp_n / 4 output codes of a pixel as one word.
constexpr int mma_weight_row(const MmaTile& tile, int channel) {
  const int warp = channel / tile.warp_n(), lane = channel % tile.warp_n(), per_thread = tile.warp_n() / 4;
  const int quad_thread = lane / per_thread, i = lane % per_thread;
  return warp * tile.warp_n() + i / 2 * 8 + quad_thread * 2 + i % 2;
}

/// How a convolution is divided into tiles.
struct MmaGrid {
  int pixels = 0;     ///< output pixels of all images
  int in_chunks = 0;  ///< chunks of 16 input channels
  int m_tiles = 0, n_tiles = 0, k_tiles = 0;

  MmaGrid(const MmaTile& tile, const Conv2dShape& shape, int images);
  int tiles() const { return m_tiles * n_tiles; }
};

/// The largest window is 15 x 15, because bit masks have 16 taps per axis.
inline constexpr int kMmaMaxKernel = 15;

/// Returns whether this family can run the convolution: one group, more than 4 channels at strides of 16 bytes.
bool mma_supports(const Conv2dShape& shape, const Conv2dParams& params, int images);

/// Returns the alternative with this tile and split, named as mma_choices() does.
CudaConv2d mma_choice(int tile, int split_k, bool in_cluster = false);

/// Returns the largest split_k without a cluster; 1 if the workspace has too few counters.
int mma_max_split(const MmaGrid& grid);

/// The functions of CudaConvFamily.
void mma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
std::vector<uint8_t> mma_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                              const Conv2dWeights& weights);
size_t mma_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images);

/// Returns which of `kernel` taps (at most 15) lie inside the image along one axis: bit r is set if `first` +
/// r * dilation is in [0, size). Two divisions rather than a loop over taps, because a network with one image waits for
/// all that a kernel does before its first load (tools/lab/notebooks/kernels.md).
OCTET_HOST_DEVICE inline uint32_t taps_inside(int first, int size, int kernel, const FastDivide& dilation) {
  // The number of taps before position `end` is end / dilation, rounded up.
  const auto before = [&](int end) {
    const int taps = dilation.divide((end > 0 ? end : 0) + static_cast<int>(dilation.divisor) - 1);
    return taps < kernel ? taps : kernel;
  };
  const uint32_t below_size = (1u << before(size - first)) - 1, below_zero = (1u << before(-first)) - 1;
  return below_size & ~below_zero;
}

}  // namespace octet::kernels
