// SPDX-License-Identifier: Apache-2.0
// The host side of the mma family: which tiles to try, the likely fastest first, and how their weights are packed.
// Tiles are ranked by a model of the multiprocessor, in clocks. It only has to rank well, because the engine measures.
#include <algorithm>
#include <climits>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

constexpr size_t kMaxChoices = 12;
constexpr size_t kMaxPartialBytes = size_t{32} << 20;

/// Returns the clocks per step of the sum of one block that has a multiprocessor for itself: the largest of what tensor
/// cores (mma.sync: 4,096 products in 1.6 clocks), shared memory (128 bytes a clock) and the L2 cache (32 bytes a
/// clock) need.
double step_clocks(const MmaTile& t) {
  const double products = 1.6 / 4096 * t.block_m * t.block_n * t.block_k;
  const double fed = static_cast<double>(t.block_m + t.block_n) * t.block_k;
  const double read = static_cast<double>(t.warps_m * t.warps_n) * (t.warp_m() + t.warp_n()) * t.block_k;
  return std::max({products, (fed + read) / 128, fed / 32});
}

/// Returns the minimum clocks of a step of a block: one mma after the other, and the wait for all warps.
double step_latency(const MmaTile& t) { return 60 + 35.0 * t.block_k / 32 / t.warps_k; }

/// Returns how many blocks a multiprocessor has at a time: those for which registers are limited, as far as its shared
/// memory goes (CUDA C++ Programming Guide, "Compute Capabilities"), of which each block takes 1 KiB for itself.
int blocks_at_once(const MmaTile& t, int capability) {
  const bool large = capability == 80 || capability == 87, hopper = capability >= 90 && capability < 120;
  const int shared_bytes = (large ? 164 : hopper ? 228 : 100) * 1024;
  return std::clamp(shared_bytes / (t.shared_bytes() + 1024), 1, t.min_blocks);
}

/// Returns the clocks of the whole convolution.
double clocks(const MmaTile& t, const MmaGrid& grid, int split, bool in_cluster, const CudaGpu& gpu) {
  constexpr double kStart = 1500;  // until the first bytes arrive from memory
  const double hand_over = in_cluster ? 1300 : 2000, bytes_a_clock = in_cluster ? 128 : 40;
  const double outputs = static_cast<double>(t.block_m) * t.block_n;
  const double finish = outputs * 0.12;  // about ten instructions each, and the stores
  const int blocks = grid.tiles() * split, of_one = ceil_div(blocks, gpu.multiprocessors);
  const int steps = ceil_div(grid.k_tiles, split);
  const double work = steps * step_clocks(t) + (split > 1 ? outputs * 4 / bytes_a_clock : finish);
  // Blocks on one multiprocessor share it and hide each other's start and latency.
  double total =
      of_one * work + ceil_div(of_one, blocks_at_once(t, gpu.capability)) * (kStart + steps * step_latency(t));
  if (split > 1) total += hand_over + split * outputs * 4 / bytes_a_clock + finish;
  return total;
}

}  // namespace

MmaGrid::MmaGrid(const MmaTile& tile, const Conv2dShape& g, int images)
    : pixels(images * g.out_h * g.out_w),
      in_chunks(ceil_div(g.in_c, 16)),
      m_tiles(ceil_div(pixels, tile.block_m)),
      n_tiles(ceil_div(g.out_c, tile.block_n)),
      k_tiles(ceil_div(g.kernel_h * g.kernel_w * in_chunks, tile.row_chunks())) {}

bool mma_supports(const Conv2dShape& g, const Conv2dParams& p, int images) {
  // The windows of a block, which may begin in as many images as it has rows, are found by 32-bit offsets.
  constexpr int kMaxRows = 256;
  const int64_t image_bytes = static_cast<int64_t>(g.in_h) * g.in_w * g.in_stride;
  const int64_t border = (static_cast<int64_t>(std::max(g.pad_h, pad_bottom(g))) + 1) * g.in_w * g.in_stride;
  const int64_t pixels = static_cast<int64_t>(images) * g.out_h * g.out_w;
  const int images_of_block = kMaxRows / (g.out_h * g.out_w) + 2;
  return g.groups == 1 && g.in_c > 4 && g.in_stride % 16 == 0 && (p.y.float_output || g.out_stride % 16 == 0) &&
         (!p.has_residual || g.residual_stride % 16 == 0) && g.kernel_h <= kMmaMaxKernel &&
         g.kernel_w <= kMmaMaxKernel && pixels <= INT_MAX - kMaxRows &&
         images_of_block * image_bytes + 2 * border <= INT_MAX;
}

int mma_max_split(const MmaGrid& grid) {
  constexpr int kCounters = kCudaWorkspaceZeros / sizeof(int32_t);
  return grid.tiles() <= kCounters ? grid.k_tiles : 1;
}

CudaConv2d mma_choice(int tile, int split_k, bool in_cluster) {
  const MmaTile& t = kMmaTiles[tile];
  std::string name = "mma_" + std::to_string(t.block_m) + "x" + std::to_string(t.block_n) + "x" +
                     std::to_string(t.block_k) + "_s" + std::to_string(t.stages);
  if (t.warps_k > 1) name += "_w" + std::to_string(t.warps_k);
  if (split_k > 1) name += (in_cluster ? "_c" : "_k") + std::to_string(split_k);
  return {.variant = tile, .split_k = split_k, .in_cluster = in_cluster, .name = name};
}

void mma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  if (!mma_supports(problem.shape, problem.params, problem.images)) return;
  std::vector<std::pair<double, CudaConv2d>> ranked;
  for (size_t i = 0; i < kMmaTiles.size(); ++i) {
    const MmaTile& tile = kMmaTiles[i];
    const MmaGrid grid(tile, problem.shape, problem.images);
    const int at_once = blocks_at_once(tile, problem.gpu.capability);
    for (const int split : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      const bool in_cluster = split > 1 && problem.gpu.capability >= 90 && mma_cluster_fits(tile, split);
      const CudaConv2d choice = mma_choice(static_cast<int>(i), split, in_cluster);
      const bool room = grid.tiles() * split <= at_once * problem.gpu.multiprocessors &&
                        mma_workspace(choice, problem.shape, problem.images) <= kMaxPartialBytes;
      if (split > 1 && (split > (in_cluster ? grid.k_tiles : mma_max_split(grid)) || !room)) break;
      ranked.emplace_back(clocks(tile, grid, split, in_cluster, problem.gpu), choice);
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(ranked.size(), kMaxChoices); ++i) found.push_back(ranked[i].second);
}

size_t mma_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images) {
  if (conv.split_k == 1 || conv.in_cluster) return 0;
  const MmaTile& tile = kMmaTiles[conv.variant];
  const size_t sums = static_cast<size_t>(tile.block_m) * tile.block_n * MmaGrid(tile, shape, images).tiles();
  return kCudaWorkspaceZeros + sums * conv.split_k * sizeof(int32_t);
}

/// Packs weights tile after tile in the layout of shared memory, so that a kernel copies a tile as it is.
std::vector<uint8_t> mma_pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                              const Conv2dWeights& w) {
  const MmaTile& tile = kMmaTiles[conv.variant];
  const MmaGrid grid(tile, g, 1);
  const size_t tile_bytes = static_cast<size_t>(tile.block_n) * tile.block_k;
  const int channels = grid.n_tiles * tile.block_n, taps = g.kernel_h * g.kernel_w;
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, channels, tile_bytes * grid.n_tiles * grid.k_tiles);
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    const int row = mma_weight_row(tile, k % tile.block_n);
    uint8_t* tiles = weight + k / tile.block_n * (tile_bytes * grid.k_tiles) + row * tile.block_k;
    const int8_t* from = w.weight + static_cast<ptrdiff_t>(k) * taps * g.in_c;
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < g.in_c; ++c) {
        const int chunk = tap * grid.in_chunks + c / 16, column = chunk % tile.row_chunks();
        uint8_t* to = tiles + chunk / tile.row_chunks() * tile_bytes;
        to[mma_swizzle(tile.block_k, row, column) * 16 + c % 16] = static_cast<uint8_t>(from[tap * g.in_c + c]);
      }
    }
  }
  return packed;
}

}  // namespace octet::kernels
