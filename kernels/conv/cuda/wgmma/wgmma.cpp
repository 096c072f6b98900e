// SPDX-License-Identifier: Apache-2.0
// The host side of the wgmma family: which convolutions and tiles it can run, how the work is divided, which tiles to
// try, the likely fastest first, and how weights are packed. Tiles are ranked by a model of the multiprocessor, in
// clocks. It only has to rank well, because the engine measures.
#include <algorithm>
#include <array>
#include <climits>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/conv/cuda/rounding.h"
#include "kernels/conv/cuda/wgmma/wgmma.h"
#include "kernels/core/divide.h"
#include "kernels/training/weights.h"
#include "src/base/error.h"

namespace octet::kernels {
namespace {

constexpr int kMaxPixels = 1024;  // pixels of one im2col copy
constexpr size_t kMaxChoices = 5;

/// Returns whether a tensor map can express windows along one axis: corners and taps have 8 bits, strides are up to 8.
bool mappable(int kernel, int stride, int pad, int dilation) {
  const int span = (kernel - 1) * dilation;
  return kernel <= BorderClasses::kMaxTaps && stride <= 8 && pad <= 128 && span <= 255 && pad - span <= 127 &&
         pad - span >= -128;
}

/// Returns whether the padding behind the image equals that before it, which the tensor maps assume.
bool pads_alike(int behind, int pad, int stride) { return behind <= pad && behind > pad - stride; }

bool few_classes(const BorderClasses& classes) { return classes.taps.size() <= BorderClasses::kMaxClasses; }

/// Returns whether windows move by single pixels, with padding no wider than the window.
bool can_shift(const Conv2dShape& g) {
  return g.kernel_h * g.kernel_w > 1 && g.stride_h == 1 && g.stride_w == 1 &&
         g.pad_h <= (g.kernel_h - 1) * g.dilation_h && g.pad_w <= (g.kernel_w - 1) * g.dilation_w;
}

}  // namespace

BorderClasses::BorderClasses(int in, int out, int kernel, int stride, int pad, int dilation) : of_output(out) {
  for (int o = 0; o < out; ++o) {
    uint32_t inside = 0;
    for (int r = 0; r < kernel; ++r) {
      const int i = o * stride - pad + r * dilation;
      if (i >= 0 && i < in) inside |= 1u << r;
    }
    const auto found = std::find(taps.begin(), taps.end(), inside);
    of_output[o] = static_cast<uint8_t>(found - taps.begin());
    if (found == taps.end()) taps.push_back(inside);
  }
}

WgmmaPlan::WgmmaPlan(const WgmmaTile& tile, const Conv2dShape& g, int images, bool residual, bool channel_tables)
    : taps(g.kernel_h * g.kernel_w), more_table_bytes(channel_tables ? (tile.block_n - 1) * kWgmmaTableBytes : 0) {
  n_tiles = ceil_div(g.out_c, tile.block_n);
  chunks = ceil_div(g.in_c, tile.block_k);
  int64_t rows = static_cast<int64_t>(images) * g.out_h * g.out_w, reach = 0;
  if (tile.shifted()) {
    padded_w = g.in_w + g.pad_w, padded_h = g.in_h + g.pad_h;
    rows = (static_cast<int64_t>(images - 1) * padded_h + g.out_h - 1) * padded_w + g.out_w;
    reach = static_cast<int64_t>(g.kernel_h - 1) * g.dilation_h * padded_w + (g.kernel_w - 1) * g.dilation_w;
  }
  const int64_t held = tile.streamed() ? 0 : static_cast<int64_t>(chunks) * taps * tile.step_bytes();
  if (rows > INT_MAX - tile.group_m || reach > kMaxPixels - tile.group_m || held > kWgmmaSharedBytes ||
      (held > 0 && chunks > kWgmmaMaxChunks)) {
    return;
  }
  m_tiles = ceil_div(static_cast<int>(rows), tile.group_m);
  x_rows = tile.group_m + static_cast<int>(reach);
  x_bytes = round_up(x_rows * tile.block_k, 1024);
  stage_bytes = x_bytes + (held == 0 ? tile.step_bytes() : 0);
  held_bytes = round_up(static_cast<int>(held), 1024);
  end_bytes = tile.end_bytes();
  const auto stages_with_ends = [&](int n) {
    return std::min((kWgmmaSharedBytes - more_table_bytes - held_bytes - n * end_bytes) / stage_bytes, kWgmmaMaxStages);
  };
  // Buffers for a tile of each group, and for the residual of its next one, unless that leaves too few stages.
  ends_log = tile.shifted() ? 0 : (tile.parts() > 1 ? 1 : 0) + (residual ? 1 : 0);
  while (ends_log > 0 && (stages_with_ends(tile.groups << ends_log) < 4 || tile.groups << ends_log > kWgmmaMaxEnds)) {
    --ends_log;
  }
  ends = tile.groups << ends_log;
  stages = stages_with_ends(ends);
}

bool wgmma_is_dense(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0;
}

bool wgmma_supports(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, int images) {
  return g.groups == 1 && g.in_c > 4 && g.in_stride % 16 == 0 && !p.y.float_output && g.out_stride % 16 == 0 &&
         (!p.has_residual || (g.residual_stride % 16 == 0 && can_scale_steps(p.residual_multiplier))) &&
         can_scale_steps(w.multiplier, w.bias, g.out_c) &&
         static_cast<int64_t>(images) * g.out_h * g.out_w <= INT_MAX - kMaxPixels &&
         pads_alike(pad_bottom(g), g.pad_h, g.stride_h) && pads_alike(pad_right(g), g.pad_w, g.stride_w) &&
         mappable(g.kernel_h, g.stride_h, g.pad_h, g.dilation_h) &&
         mappable(g.kernel_w, g.stride_w, g.pad_w, g.dilation_w) &&
         few_classes(BorderClasses(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h)) &&
         few_classes(BorderClasses(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w));
}

bool wgmma_keeps_two_of_four(const Conv2dShape& g, const int8_t* weight) {
  return first_dense_group(weight, static_cast<int64_t>(g.out_c) * g.kernel_h * g.kernel_w, g.in_c) < 0;
}

bool wgmma_fits(const WgmmaTile& tile, const Conv2dShape& g, int images, bool channel_tables) {
  return (!tile.shifted() || can_shift(g)) && (!tile.sparse || (g.kernel_h == 3 && g.kernel_w == 3)) &&
         WgmmaPlan(tile, g, images, /*residual=*/false, channel_tables).stages >= 2;
}

namespace {

/// Returns the clocks of all tiles: the largest of what tensor cores (4,096 products a clock, half of them skipped if
/// sparse), shared memory (128 bytes a clock, read again for every 64 x 128 products), the L2 cache (36 bytes a clock),
/// memory (18 bytes a clock) and the finishing of tiles need.
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

namespace {

void find_choices(const CudaConvProblem& problem, bool channel_tables, std::vector<CudaConv2d>& found) {
  if (problem.gpu.capability != 90) return;
  if (!wgmma_supports(problem.shape, problem.params, problem.weights, problem.images)) return;
  const bool sparse = wgmma_keeps_two_of_four(problem.shape, problem.weights.weight);
  std::vector<std::pair<double, CudaConv2d>> ranked;
  for (int i = 0; i < static_cast<int>(kWgmmaTiles.size()); ++i) {
    const WgmmaTile& tile = kWgmmaTiles[i];
    if ((tile.sparse && !sparse) || !wgmma_fits(tile, problem.shape, problem.images, channel_tables)) continue;
    const WgmmaPlan plan(tile, problem.shape, problem.images, problem.params.has_residual, channel_tables);
    ranked.emplace_back(clocks(tile, plan, problem.shape, problem.params, problem.gpu.multiprocessors),
                        wgmma_choice(i));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(ranked.size(), kMaxChoices); ++i) found.push_back(ranked[i].second);
}

}  // namespace

void wgmma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  find_choices(problem, false, found);
}

void wgmma_channel_lookup_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  find_choices(problem, true, found);
}

WgmmaPacked::WgmmaPacked(const WgmmaTile& tile, const Conv2dShape& g)
    : rows(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h),
      columns(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w) {
  channels = round_up(g.out_c, tile.block_n);
  const auto aligned = [](size_t n) { return (n + 255) / 256 * 256; };
  starts = cuda_constants_bytes(channels);
  row_class = aligned(starts + rows.taps.size() * columns.taps.size() * channels * sizeof(int32_t));
  column_class = row_class + rows.of_output.size();
  weight = aligned(column_class + columns.of_output.size());
  const int64_t steps = static_cast<int64_t>(round_up(g.in_c, tile.block_k)) / tile.block_k * g.kernel_h * g.kernel_w;
  bytes = weight + channels / tile.block_n * steps * tile.step_bytes();
}

namespace {

/// Returns the sum of a channel's weights at each tap.
std::vector<int32_t> tap_sums(const Conv2dShape& g, const int8_t* weight) {
  std::vector<int32_t> sums(g.kernel_h * g.kernel_w);
  for (int32_t& sum : sums) {
    for (int c = 0; c < g.in_c; ++c) sum += *weight++;
  }
  return sums;
}

/// Returns the sum over the taps whose bits are set in both rows and columns.
int32_t sum_inside(const Conv2dShape& g, const std::vector<int32_t>& sums, uint32_t rows, uint32_t columns) {
  int32_t sum = 0;
  for (int r = 0; r < g.kernel_h; ++r) {
    for (int s = 0; s < g.kernel_w; ++s) {
      if ((rows >> r & 1) && (columns >> s & 1)) sum += sums[r * g.kernel_w + s];
    }
  }
  return sum;
}

/// Packs the weights of a channel and a tap for a dense tile: one row of each step (WgmmaPacked) from `tiles` on, where
/// steps are chunk_bytes apart.
void pack_dense_row(const WgmmaTile& tile, int row, const int8_t* from, int in_c, uint8_t* tiles, size_t chunk_bytes) {
  for (int c = 0; c < in_c; ++c) {
    const int in_step = c % tile.block_k;
    uint8_t* step = tiles + c / tile.block_k * chunk_bytes + row * tile.block_k;
    step[mma_swizzle(tile.block_k, row, in_step / 16) * 16 + in_step % 16] = static_cast<uint8_t>(from[c]);
  }
}

/// Returns the positions of two of four weights that include all that are not 0.
std::array<int, kKept> kept_places(const int8_t* four, int count) {
  std::array<int, kKept> places{};
  int kept = 0;
  for (int i = 0; i < count && kept < kKept; ++i) {
    if (four[i] != 0) places[kept++] = i;
  }
  if (kept == 0) return {0, 1};
  if (kept == 1) return places[0] == 0 ? std::array{0, 1} : std::array{0, places[0]};
  return places;
}

/// Packs the weights of a channel and a tap for a sparse tile: the kept weights, and which ones are kept.
void pack_sparse_row(const WgmmaTile& tile, int row, const int8_t* from, int in_c, uint8_t* tiles, size_t chunk_bytes) {
  const int slices = tile.slices();
  for (int c = 0; c < in_c; c += kGroup) {
    const int column = c % kWgmmaSlice, piece = c % tile.block_k / kWgmmaSlice;
    uint8_t* step = tiles + c / tile.block_k * chunk_bytes;
    uint8_t* codes = step + piece * kWgmmaPieceBytes;
    uint8_t* words = step + slices * kWgmmaPieceBytes;
    const int thread = wgmma_kept_thread(row, column / 32), shift = column / kGroup % 2 * 4;
    uint8_t& kept = words[(thread * slices + piece) * 4 + column % 32 / 8];
    const std::array<int, kKept> places = kept_places(from + c, std::min(kGroup, in_c - c));
    kept = static_cast<uint8_t>((kept & ~(15 << shift)) | (places[0] | places[1] << 2) << shift);
    for (int i = 0; i < kKept; ++i) {
      if (c + places[i] >= in_c) continue;  // the last group may be shorter
      codes[wgmma_piece_byte(row, column / 2 + i)] = static_cast<uint8_t>(from[c + places[i]]);
    }
  }
}

/// Marks the first two of each four weights as kept, for padding: a mark must name two different weights.
void keep_first_two(const WgmmaTile& tile, uint8_t* weight, const uint8_t* end) {
  constexpr int kFirstTwo = 0x44;
  const int codes = tile.block_n * tile.block_k / 2;
  for (; weight < end; weight += tile.step_bytes()) std::fill(weight + codes, weight + tile.step_bytes(), kFirstTwo);
}

}  // namespace

std::vector<uint8_t> wgmma_pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                                const Conv2dWeights& w) {
  const WgmmaTile& tile = kWgmmaTiles[conv.variant];
  if (tile.sparse && !wgmma_keeps_two_of_four(g, w.weight)) {
    throw promise_error("cuda convolution: " + conv.name + " is for weights of which two of four are 0, these are not");
  }
  const WgmmaPacked at(tile, g);
  const int taps = g.kernel_h * g.kernel_w, steps = round_up(g.in_c, tile.block_k) / tile.block_k * taps;
  const size_t step_bytes = tile.step_bytes();
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, at.channels, at.bytes - cuda_constants_bytes(at.channels));
  scale_constants(packed.data(), at.channels, g.out_c);
  std::copy(at.rows.of_output.begin(), at.rows.of_output.end(), packed.begin() + at.row_class);
  std::copy(at.columns.of_output.begin(), at.columns.of_output.end(), packed.begin() + at.column_class);
  if (tile.sparse) keep_first_two(tile, packed.data() + at.weight, packed.data() + at.bytes);
  int32_t* starts = reinterpret_cast<int32_t*>(packed.data() + at.starts);
  for (int k = 0; k < g.out_c; ++k) {
    const int8_t* from = w.weight + static_cast<ptrdiff_t>(k) * taps * g.in_c;
    const std::vector<int32_t> sums = tap_sums(g, from);
    int32_t* start = starts + k;
    for (const uint32_t rows : at.rows.taps) {
      for (const uint32_t columns : at.columns.taps) {
        *start = -p.x.zero_point * sum_inside(g, sums, rows, columns);
        start += at.channels;
      }
    }
    uint8_t* tiles = packed.data() + at.weight + k / tile.block_n * (step_bytes * steps);
    const auto pack_row = tile.sparse ? pack_sparse_row : pack_dense_row;
    for (int tap = 0; tap < taps; ++tap, from += g.in_c, tiles += step_bytes) {
      pack_row(tile, wgmma_weight_row(k % tile.block_n), from, g.in_c, tiles, step_bytes * taps);
    }
  }
  return packed;
}

}  // namespace octet::kernels
