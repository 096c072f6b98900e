// SPDX-License-Identifier: Apache-2.0
// Which alternatives for an inverted residual to try, the likely fastest first. They are ranked by a model of the
// multiprocessor, in clocks, for both kernels. It only has to rank well, because the engine measures.
#include <algorithm>
#include <cmath>

#include "kernels/core/cuda.h"
#include "kernels/groups/inverted_residual/plan.h"

namespace octet::kernels {
namespace {

constexpr size_t kMaxChoices = 32, kOfEachKind = 12;

/// Returns the distinct sizes of the largest piece when `whole` is divided into 1, 2, ... pieces of about equal size.
std::vector<int> pieces(int whole) {
  std::vector<int> sizes;
  for (int count = 1; count <= whole; ++count) {
    if (sizes.empty() || sizes.back() != ceil_div(whole, count)) sizes.push_back(ceil_div(whole, count));
  }
  return sizes;
}

/// Returns how many thread blocks run concurrently on a multiprocessor.
int resident_tiles(const CudaInvertedResidual& choice, const InvertedResidual& block, int images, int shared_limit) {
  const int quads = inverted_quads(block.project.shape.out_c);
  // Upper bounds of what kernels use on sm_90 (cuobjdump --dump-resource-usage): 128; in turns 216 and 182. No kernel
  // uses 350, the real numbers are 162 to 211, but the clocks below were fitted with it.
  const int registers = choice.rows * quads <= 2 ? 128 : choice.turns == 1 ? 350 : quads == 1 ? 224 : 192;
  const int warps = InvertedTiles(choice, block, images).warps * choice.groups;
  const int bytes = InvertedShared(choice, block, images).bytes + 1024;
  return std::max(1, std::min({(shared_limit + 1024) / bytes, 65536 / (warps * 32 * registers), 64 / warps}));
}

/// Returns the clocks of the whole inverted residual. The model was fitted to 3,700 alternatives measured on an H200
/// (tools/lab/notebooks/groups.md), none of them in turns.
double clocks(const CudaInvertedResidual& choice, const InvertedResidual& block, int images, const CudaGpu& gpu,
              int shared_limit) {
  const InvertedTiles t(choice, block, images);
  const InvertedChunk chunk(block);
  const Conv2dShape& in = block.first().shape;
  const int quads = inverted_quads(block.project.shape.out_c), stride = block.depthwise.shape.stride_h;
  const double pixels = static_cast<double>(std::min(t.halo_h, in.in_h)) * std::min(t.halo_w, in.in_w) * choice.images;
  const double expands = chunk.k_steps > 0 ? pixels / 16 : 0, k = chunk.k_steps;
  const double in_rows = (choice.rows - 1) * stride + 3, rows = choice.rows;
  // Clocks of a chunk: wavefronts of shared memory, instructions, products (mma.sync: 1.6 clocks each).
  const double shared_clocks = expands * (8 * k + 8) + t.warps * (60 + 8 * quads + in_rows * 16);
  const bool stays = choice.turns > 1;
  const double of_warp = std::ceil(expands / t.warps) * ((stays ? 85 : 110) + 16 * k) + (stays ? 60 : 120) +
                         in_rows * 108 + rows * (100 + 4 * quads);
  const double products = 1.6 * (expands * 4 * k + t.warps * rows * (12 + 4 * quads));
  const double body = choice.groups * std::max({shared_clocks, of_warp * t.warps / 3.2, products, chunk.bytes / 40.0});
  const double alone = std::max(body, stays ? of_warp * 5 : of_warp * 7.4 + 310);
  const int resident = resident_tiles(choice, block, images, shared_limit);
  const int blocks = ceil_div(t.tiles() * choice.parts, choice.turns), of_one = ceil_div(blocks, gpu.multiprocessors);
  const int at_once = std::min(of_one, resident);
  // The blocks of a cluster run on neighbouring multiprocessors: 16 of these hold only whole clusters.
  const int clusters = gpu.multiprocessors / 16 * (16 * resident / choice.parts);
  const int slots = std::max(1, choice.parts == 1 ? gpu.multiprocessors * resident : clusters * choice.parts);
  // With many blocks, waves overlap and no longer count as whole ones.
  const double waves = blocks > 4 * slots ? static_cast<double>(blocks) / slots : ceil_div(blocks, slots);
  const double begin = 1640 + pixels * in.in_c / 13 * at_once, end = rows * quads * t.warps * 79 * at_once;
  const double work = ceil_div(t.chunks, choice.parts * choice.groups) * std::max(alone, body * at_once);
  const double sum = (choice.parts > 1 ? 1040 : choice.groups > 1 ? 240 : 0) + 30 * rows * quads;
  if (!stays) return waves * (begin + work + sum + end);
  // In turns, input is copied while the previous tile is computed, and warps finish tiles while others go on. Not
  // fitted.
  return waves * (begin + choice.turns * (work + sum + 0.3 * pixels * in.in_c / 13 * at_once + 0.6 * end));
}

}  // namespace

std::vector<RankedTile> inverted_ranking(const InvertedResidual& block, int images, const CudaGpu& gpu) {
  if (!cuda_runs_inverted_residual(block, images, gpu)) return {};
  const bool clusters = gpu.capability >= 90;
  const int shared_limit = cuda_shared_limit(gpu.capability);
  const Conv2dShape& out = block.project.shape;
  const int chunks = ceil_div(block.depthwise.shape.out_c, kHiddenChunk);
  const int most_parts = clusters ? std::min(chunks, kMaxParts) : 1;
  std::vector<RankedTile> ranked;
  const auto consider = [&](const CudaInvertedResidual& tile) {
    if (InvertedTiles(tile, block, images).warps * tile.groups > kMaxWarps) return;
    if (InvertedShared(tile, block, images).bytes > shared_limit) return;
    ranked.push_back({clocks(tile, block, images, gpu, shared_limit), tile});
  };
  // Considers a tile in turns, with the number of turns for which the GPU runs one, two or three waves of blocks.
  const auto consider_turns = [&](CudaInvertedResidual tile) {
    if (!inverted_takes_turns(tile.rows, out.out_c)) return;
    tile.images = inverted_turn_images(block.has_expand);
    const InvertedTiles tiles(tile, block, images);
    tile.turns = 2;  // the layout is the same for any number above 1
    if (!inverted_turns_fit(tile, block, images, shared_limit)) return;
    const int slots = gpu.multiprocessors * resident_tiles(tile, block, images, shared_limit);
    int before = 0;
    for (int waves = 1; waves <= 3; ++waves) {
      tile.turns = ceil_div(tiles.tiles(), slots * waves);
      if (tile.turns > 1 && tile.turns <= tiles.groups && tile.turns != before) consider(tile);
      before = tile.turns;
    }
  };
  for (int rows = 1; rows <= inverted_max_rows(inverted_quads(out.out_c)); rows *= 2) {
    const int all_strips = ceil_div(out.out_h, rows);
    for (const int width : pieces(out.out_w)) {
      for (const int strips : pieces(all_strips)) {
        const int most_images = width == out.out_w && strips == all_strips ? std::min(images, 8) : 1;
        if (images > 1) consider_turns({rows, strips, width});
        for (int of_tile = 1; of_tile <= most_images; ++of_tile) {
          for (int parts = 1; parts <= most_parts; ++parts) {
            for (int groups = 1; groups * parts <= chunks && groups <= kMaxWarps; ++groups) {
              consider({rows, strips, width, of_tile, groups, parts});
            }
          }
        }
      }
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.clocks < b.clocks; });
  return ranked;
}

std::vector<CudaInvertedResidual> cuda_inverted_residual_choices(const InvertedResidual& block, int images,
                                                                 const CudaGpu& gpu) {
  const std::vector<RankedTile> ranked = inverted_ranking(block, images, gpu);
  const auto stays = [](const RankedTile& r) { return r.tile.turns > 1; };
  const size_t staying = std::count_if(ranked.begin(), ranked.end(), stays);
  // The model ranks within a kind of kernel better than between the two kinds, so some of each are offered.
  size_t left[2] = {kMaxChoices - std::min(kOfEachKind, staying),
                    kMaxChoices - std::min(kOfEachKind, ranked.size() - staying)};
  std::vector<CudaInvertedResidual> found;
  for (const RankedTile& r : ranked) {
    if (found.size() == kMaxChoices) break;
    size_t& of_kind = left[stays(r)];
    if (of_kind == 0) continue;
    --of_kind;
    found.push_back(r.tile);
  }
  return found;
}

}  // namespace octet::kernels
