// Which tiles of an inverted residual to try, the likely fastest first: a model of the multiprocessor, in clocks. It
// need not be right, only rank well: the engine measures.
#include "kernels/inverted_residual_int8/cuda/plan.h"

#include <climits>
#include <cmath>

#include "kernels/conv2d_int8/conv2d_check.h"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/padding.h"
#include "src/common/error.h"

namespace octet::kernels {
namespace {

constexpr size_t kMaxChoices = 32;

void require(bool ok, const char* what) {
  if (!ok) throw promise_error(std::string("cuda inverted residual: ") + what);
}

/// The second convolution reads what the first writes.
void check_edge(const ConvNode& from, const ConvNode& to) {
  require(from.shape.out_c == to.shape.in_c && from.shape.out_h == to.shape.in_h && from.shape.out_w == to.shape.in_w,
          "a convolution's input is not the output of the one before it");
  require(from.params.y.is_signed == to.params.x.is_signed && from.params.y.zero_point == to.params.x.zero_point,
          "a convolution's zero point is not that of the one before it");
}

void check(const InvertedResidual& block) {
  check_conv2d(block.depthwise.shape, block.depthwise.params, block.depthwise.weights, "depthwise");
  check_conv2d(block.project.shape, block.project.params, block.project.weights, "narrowing");
  check_edge(block.depthwise, block.project);
  if (!block.has_expand) return;
  check_conv2d(block.expand.shape, block.expand.params, block.expand.weights, "expanding");
  check_edge(block.expand, block.depthwise);
}

bool is_pointwise(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0 &&
         g.groups == 1;
}

bool is_depthwise(const Conv2dShape& g) {
  return g.groups == g.in_c && g.out_c == g.in_c && g.kernel_h == 3 && g.kernel_w == 3 && g.dilation_h == 1 &&
         g.dilation_w == 1 && g.stride_h == g.stride_w && g.stride_h <= 2;
}

/// Its codes are rounded by steps.
bool has_steps(const ConvNode& conv) {
  if (conv.params.y.float_output || conv.params.has_residual) return false;
  for (int k = 0; k < conv.shape.out_c; ++k) {
    if (!can_scale_steps(conv.weights.multiplier[k]) || std::fabs(conv.weights.bias[k]) > 0x1p20f) return false;
  }
  return true;
}

bool fits(const InvertedResidual& block, int images) {
  const Conv2dShape &in = block.first().shape, &d = block.depthwise.shape, &out = block.project.shape;
  return (!block.has_expand || (is_pointwise(block.expand.shape) && has_steps(block.expand))) && is_depthwise(d) &&
         has_steps(block.depthwise) && is_pointwise(out) && !block.project.params.y.float_output &&
         inverted_quads(out.out_c) > 0 && in.in_stride % 16 == 0 && out.out_stride % 16 == 0 &&
         (!block.project.params.has_residual || out.residual_stride % 16 == 0) &&
         static_cast<int64_t>(images) * in.in_h * in.in_w <= INT_MAX &&
         static_cast<int64_t>(images) * out.out_h * out.out_w <= INT_MAX;
}

/// The sizes of pieces when `whole` is cut into 1, 2 ... about equal ones.
std::vector<int> pieces(int whole) {
  std::vector<int> sizes;
  for (int count = 1; count <= whole; ++count) {
    if (sizes.empty() || sizes.back() != ceil_div(whole, count)) sizes.push_back(ceil_div(whole, count));
  }
  return sizes;
}

/// Clocks of the whole, fitted to 3,700 tiles measured on an H200 (conv2d_int8/NOTES.md), for a tile of which
/// `resident` run at once on a multiprocessor.
double clocks(const CudaInvertedResidual& choice, const InvertedResidual& block, int images, const CudaGpu& gpu,
              int shared_limit) {
  const InvertedTiles t(choice, block, images);
  const InvertedChunk chunk(block);
  const InvertedShared shared(choice, block, images);
  const Conv2dShape& in = block.first().shape;
  const int quads = inverted_quads(block.project.shape.out_c), stride = block.depthwise.shape.stride_h;
  const double pixels = static_cast<double>(std::min(t.halo_h, in.in_h)) * std::min(t.halo_w, in.in_w) * choice.images;
  const double expands = chunk.k_steps > 0 ? pixels / 16 : 0, k = chunk.k_steps;
  const double in_rows = (choice.rows - 1) * stride + 3, rows = choice.rows;
  // Of a chunk: wavefronts of shared memory, instructions, products (mma.sync: 1.6 clocks each).
  const double shared_clocks = expands * (8 * k + 8) + t.warps * (60 + 8 * quads + in_rows * 16);
  const double of_warp = std::ceil(expands / t.warps) * (110 + 16 * k) + 120 + in_rows * 108 + rows * (100 + 4 * quads);
  const double products = 1.6 * (expands * 4 * k + t.warps * rows * (12 + 4 * quads));
  const double body = choice.groups * std::max({shared_clocks, of_warp * t.warps / 3.2, products, chunk.bytes / 40.0});
  const double alone = std::max(body, of_warp * 7.4 + 310);
  const int registers = choice.rows * quads <= 2 ? 128 : 350, warps = t.warps * choice.groups;
  const int resident =
      std::max(1, std::min({shared_limit / (shared.bytes + 1024), 65536 / (warps * 32 * registers), 64 / warps}));
  const int blocks = t.tiles() * choice.parts, of_one = ceil_div(blocks, gpu.multiprocessors);
  const int at_once = std::min(of_one, resident);
  // A cluster's blocks are neighbours: of 16 multiprocessors, all but the last few that do not make up a whole one.
  const int clusters = gpu.multiprocessors / 16 * (16 * resident / choice.parts);
  const int slots = std::max(1, choice.parts == 1 ? gpu.multiprocessors * resident : clusters * choice.parts);
  // Many blocks do not wait for one another.
  const double waves = blocks > 4 * slots ? static_cast<double>(blocks) / slots : ceil_div(blocks, slots);
  const double begin = 1640 + pixels * in.in_c / 13 * at_once, end = rows * quads * t.warps * 79 * at_once;
  const double work = ceil_div(t.chunks, choice.parts * choice.groups) * std::max(alone, body * at_once);
  const double sum = (choice.parts > 1 ? 1040 : choice.groups > 1 ? 240 : 0) + 30 * rows * quads;
  return waves * (begin + work + sum + end);
}

}  // namespace

InvertedTiles::InvertedTiles(const CudaInvertedResidual& choice, const InvertedResidual& block, int images) {
  const Conv2dShape& d = block.depthwise.shape;
  height = choice.rows * choice.strips;
  halo_h = (height - 1) * d.stride_h + 3, halo_w = (choice.width - 1) * d.stride_w + 3;
  across = ceil_div(d.out_w, choice.width), down = ceil_div(d.out_h, height), groups = ceil_div(images, choice.images);
  positions = choice.images * choice.strips * choice.width;
  warps = ceil_div(positions, 16);
  chunks = ceil_div(d.out_c, kHiddenChunk);
}

InvertedShared::InvertedShared(const CudaInvertedResidual& choice, const InvertedResidual& block, int images) {
  const InvertedTiles tiles(choice, block, images);
  const InvertedChunk chunk(block);
  const Conv2dShape& in = block.first().shape;
  const int most = std::min(tiles.halo_h, in.in_h) * std::min(tiles.halo_w, in.in_w) * choice.images;
  const int pixels = ceil_div(most, 16) * 16;
  x_pitch = chunk.k_steps > 0 ? chunk.k_steps * 32 + 16 : 0;
  x = choice.groups * 2 * chunk.bytes;
  hidden = ceil_div(x + pixels * x_pitch, 128) * 128;
  // 64 bytes more than a multiple of 128: what a warp writes to both planes at once falls into different banks.
  plane = ceil_div(tiles.halo_h * tiles.halo_w * choice.images * 16, 128) * 128 + 64;
  positions = hidden + choice.groups * 2 * plane;
  bytes = positions + pixels * 4;
  const int units = tiles.warps * choice.rows * inverted_quads(block.project.shape.out_c);
  gathered = std::max(bytes, choice.groups * units * kUnitBytes);
  bytes = gathered + (choice.parts > 1 ? ceil_div(units, choice.parts) * choice.parts * kUnitBytes : 0);
}

std::string CudaInvertedResidual::name() const {
  std::string name =
      "inverted_residual_" + std::to_string(rows * strips) + "x" + std::to_string(width) + "_r" + std::to_string(rows);
  if (images > 1) name += "_i" + std::to_string(images);
  if (groups > 1) name += "_g" + std::to_string(groups);
  if (parts > 1) name += "_c" + std::to_string(parts);
  return name;
}

bool cuda_runs_inverted_residual(const InvertedResidual& block, int images, const CudaGpu& gpu) {
  check(block);
  require(images > 0, "empty tensor");
  return gpu.capability >= 80 && fits(block, images);
}

std::vector<RankedTile> inverted_ranking(const InvertedResidual& block, int images, const CudaGpu& gpu) {
  if (!cuda_runs_inverted_residual(block, images, gpu)) return {};
  const bool clusters = gpu.capability >= 90;
  const int shared_limit = (clusters && gpu.capability < 120 ? 227 : 99) * 1024;
  const Conv2dShape& out = block.project.shape;
  const int chunks = ceil_div(block.depthwise.shape.out_c, kHiddenChunk);
  const int most_parts = clusters ? std::min(chunks, kMaxParts) : 1;
  std::vector<RankedTile> ranked;
  const auto consider = [&](const CudaInvertedResidual& tile) {
    if (InvertedTiles(tile, block, images).warps * tile.groups > kMaxWarps) return;
    if (InvertedShared(tile, block, images).bytes > shared_limit) return;
    ranked.push_back({clocks(tile, block, images, gpu, shared_limit), tile});
  };
  for (int rows = 1; rows <= inverted_max_rows(inverted_quads(out.out_c)); rows *= 2) {
    const int all_strips = ceil_div(out.out_h, rows);
    for (const int width : pieces(out.out_w)) {
      for (const int strips : pieces(all_strips)) {
        const int most_images = width == out.out_w && strips == all_strips ? std::min(images, 8) : 1;
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
  std::vector<CudaInvertedResidual> found;
  for (const RankedTile& ranked : inverted_ranking(block, images, gpu)) {
    if (found.size() == kMaxChoices) break;
    found.push_back(ranked.tile);
  }
  return found;
}

}  // namespace octet::kernels
