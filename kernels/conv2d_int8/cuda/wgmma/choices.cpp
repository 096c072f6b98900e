// Which tiles of the wgmma family to try, the likely fastest first: a model of the multiprocessor, in clocks. It need
// not be right, only rank well: the engine measures.
#include <algorithm>

#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"

namespace octet::kernels {
namespace {

constexpr size_t kMaxChoices = 5;

/// Of all tiles: tensor cores (4,096 products a clock, half of them skipped where sparse), shared memory (128 bytes a
/// clock, read for every 64 x 128 products anew), the L2 cache (36 bytes a clock), memory (18), and ends of tiles.
double clocks(const WgmmaTile& t, const WgmmaPlan& plan, const Conv2dShape& g, const Conv2dParams& p,
              int multiprocessors) {
  constexpr double kStart = 2000;
  const double steps = static_cast<double>(plan.chunks) * plan.taps;
  const double outputs = static_cast<double>(t.group_m) * t.block_n;
  const double products = outputs * t.block_k * steps / (t.sparse ? 8192 : 4096);
  const double read = t.block_n / 64.0 * ((t.sparse ? 32 : 64) + t.group_m) * t.block_k * steps / 128;
  const double stages = static_cast<double>(plan.chunks) * (t.shifted() ? 1 : plan.taps);
  const double fed = stages * plan.stage_bytes / 36;
  const double memory = (outputs * (p.has_residual ? 2 : 1) +
                         static_cast<double>(t.group_m) * g.in_c * g.stride_h * g.stride_w / plan.n_tiles) /
                        18;
  const double finish = outputs * (p.has_residual ? 0.08 : 0.06);
  const double work = std::max({products, read, fed, memory, finish}) + (t.shared ? finish : 0);
  const int blocks = t.streamed() ? multiprocessors : std::max(multiprocessors / plan.n_tiles, 1) * plan.n_tiles;
  const int of_one = (plan.tiles() + blocks - 1) / blocks * ((blocks + multiprocessors - 1) / multiprocessors);
  return kStart + std::max(work, plan.held_bytes / 40.0) + (of_one - 1) * work + finish * 128 / t.block_n;
}

}  // namespace

CudaConv2d wgmma_choice(int tile) {
  const WgmmaTile& t = kWgmmaTiles[tile];
  std::string name = (t.sparse ? "wgmma_sp_" : "wgmma_") + std::to_string(t.group_m) + "x" + std::to_string(t.block_n) +
                     "x" + std::to_string(t.block_k) + "_g" + std::to_string(t.groups);
  if (t.mode == WgmmaMode::held) name += "_held";
  if (t.shifted()) name += "_shifted";
  if (t.shared) name += "_shared";
  return {.variant = tile, .name = name};
}

void wgmma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  if (problem.gpu.capability != 90) return;
  if (!wgmma_supports(problem.shape, problem.params, problem.weights, problem.images)) return;
  const bool sparse = wgmma_keeps_two_of_four(problem.shape, problem.weights.weight);
  std::vector<std::pair<double, CudaConv2d>> ranked;
  for (int i = 0; i < static_cast<int>(kWgmmaTiles.size()); ++i) {
    const WgmmaTile& tile = kWgmmaTiles[i];
    if ((tile.sparse && !sparse) || !wgmma_fits(tile, problem.shape, problem.images)) continue;
    const WgmmaPlan plan(tile, problem.shape, problem.images, problem.params.has_residual);
    ranked.emplace_back(clocks(tile, plan, problem.shape, problem.params, problem.gpu.multiprocessors),
                        wgmma_choice(i));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(ranked.size(), kMaxChoices); ++i) found.push_back(ranked[i].second);
}

}  // namespace octet::kernels
