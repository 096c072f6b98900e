// Which inverted residuals the kernels run, and where things lie.
#include "kernels/inverted_residual_int8/cuda/plan.h"

#include <climits>

#include "kernels/conv2d_int8/conv2d_check.h"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/padding.h"
#include "src/common/error.h"

namespace octet::kernels {
namespace {

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
  return !conv.params.y.float_output && !conv.params.has_residual &&
         can_scale_steps(conv.weights.multiplier, conv.weights.bias, conv.shape.out_c);
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
  const int halo = tiles.halo_h * tiles.halo_w;
  // What lies behind a pixel's channels, the next pixel's or 16 bytes of nothing, meets weights 0.
  x_pitch = chunk.k_steps > 0 ? (ceil_div(in.in_c, 16) | 1) * 16 : 0;
  x_swap = 0;
  if (choice.turns > 1) {
    if (chunk.k_steps > 0 && ceil_div(in.in_c, 16) == 2) x_pitch = 2 * 16, x_swap = 1;
    units = ceil_div(halo, 8), x_image = halo * x_pitch;
    x_buffer = 2 * x_image + 8 * x_pitch;  // the last eight pixels may be fewer
    x = tiles.chunks * chunk.bytes;
    hidden = ceil_div(x + 2 * x_buffer, 128) * 128;
    plane = ceil_div(halo * 16, 128) * 128 + 64;  // see below
    positions = hidden + inverted_turn_buffers(block.has_expand) * 2 * choice.images * plane;
    bytes = gathered = positions + kPlaceBytes + tiles.warps * 32 * (2 / choice.images) * 4;
    return;
  }
  const int pixels = ceil_div(most, 16) * 16;
  units = x_image = x_buffer = 0;
  x = choice.groups * 2 * chunk.bytes;
  hidden = ceil_div(x + pixels * x_pitch + 16, 128) * 128;
  // 64 bytes more than a multiple of 128: what a warp writes to both planes at once falls into different banks.
  plane = ceil_div(halo * choice.images * 16, 128) * 128 + 64;
  positions = hidden + choice.groups * 2 * plane;
  bytes = positions + pixels * 4;
  const int sums = tiles.warps * choice.rows * inverted_quads(block.project.shape.out_c);
  gathered = std::max(bytes, choice.groups * sums * kUnitBytes);
  bytes = gathered + (choice.parts > 1 ? ceil_div(sums, choice.parts) * choice.parts * kUnitBytes : 0);
}

std::string CudaInvertedResidual::name() const {
  std::string name =
      "inverted_residual_" + std::to_string(rows * strips) + "x" + std::to_string(width) + "_r" + std::to_string(rows);
  if (images > 1) name += "_i" + std::to_string(images);
  if (groups > 1) name += "_g" + std::to_string(groups);
  if (parts > 1) name += "_c" + std::to_string(parts);
  if (turns > 1) name += "_t" + std::to_string(turns);
  return name;
}

bool inverted_turns_fit(const CudaInvertedResidual& choice, const InvertedResidual& block, int images,
                        int shared_limit) {
  const InvertedTiles tiles(choice, block, images);
  const InvertedShared shared(choice, block, images);
  return inverted_takes_turns(choice.rows, block.project.shape.out_c) && tiles.warps <= kMaxWarps &&
         choice.images == inverted_turn_images(block.has_expand) &&
         block.project.shape.out_h * static_cast<int64_t>(block.project.shape.out_w) < 1 << 28 &&
         shared.units <= tiles.warps * kTurnUnits && shared.bytes <= shared_limit;
}

bool cuda_runs_inverted_residual(const InvertedResidual& block, int images, const CudaGpu& gpu) {
  check(block);
  require(images > 0, "empty tensor");
  return gpu.capability >= 80 && fits(block, images);
}

}  // namespace octet::kernels
