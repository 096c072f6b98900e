// The wgmma family: launches the kernels of part_*.cu, which are compiled for compute capability 9.0 alone.
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"

#include <array>
#include <mutex>

#include "kernels/conv2d_int8/cuda/wgmma/args.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/maps.h"

namespace octet::kernels {
namespace {

WgmmaOutput output(const WgmmaPacked& at, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data) {
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  WgmmaOutput out{.constants = cuda_channel_constants(packed, at.channels),
                  .steps = StepRounding(p.y),
                  .rounding = PackedRounding(p.y),
                  .in_steps = StepRounding::can(p.y),
                  .lookup = CodeLookup(data),
                  .added = ResidualSteps(p.residual.zero_point, p.residual.is_signed, p.residual_multiplier),
                  .residual = p.has_residual ? static_cast<const uint8_t*>(data.residual) : nullptr,
                  .y = static_cast<uint8_t*>(data.y),
                  .pixels = data.images * g.out_h * g.out_w,
                  .out_c = g.out_c,
                  .out_stride = g.out_stride,
                  .residual_stride = g.residual_stride,
                  .by_image = FastDivide(g.out_h * g.out_w),
                  .by_row = FastDivide(g.out_w)};
  if (p.x.zero_point == 0) return out;
  out.starts.start = reinterpret_cast<const int32_t*>(packed + at.starts);
  out.starts.channels = at.channels;
  out.starts.column_classes = static_cast<int>(at.columns.taps.size());
  if (at.rows.taps.size() * at.columns.taps.size() > 1) {
    out.starts.row_class = packed + at.row_class;
    out.starts.column_class = packed + at.column_class;
  }
  return out;
}

CUtensorMap input_map(const WgmmaTile& tile, const Conv2dShape& g, const CudaConv2dData& data, int pixels) {
  const auto map = tile.shifted() ? padded_map : wgmma_is_dense(g) ? dense_map : window_map;
  return map(g, data.x, data.images, tile.block_k, pixels);
}

WgmmaArgs arguments(const WgmmaTile& tile, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data) {
  const WgmmaPlan plan(tile, g, data.images, p.has_residual);
  const WgmmaPacked at(tile, g);
  WgmmaArgs a{.x = input_map(tile, g, data, plan.x_rows),
              .end = output(at, g, p, data),
              .weight = static_cast<const uint8_t*>(data.packed) + at.weight,
              .g = g,
              .plan = plan,
              .images = data.images,
              .tiles = plan.tiles(),
              .dense = wgmma_is_dense(g),
              .by_n_tiles = FastDivide(plan.n_tiles),
              .by_stages = FastDivide(plan.stages)};
  if (!tile.shifted()) {
    a.y = rows_map(data.y, a.end.pixels, g.out_c, g.out_stride, tile.group_m);
    if (p.has_residual) {
      a.residual = rows_map(data.residual, a.end.pixels, g.out_c, g.residual_stride, tile.group_m);
    }
  }
  if (tile.shifted()) {
    a.by_padded_image = FastDivide(plan.padded_h * plan.padded_w);
    a.by_padded_row = FastDivide(plan.padded_w);
    const int row = tile.block_k / 16;
    a.to_next_column = g.dilation_w * row;
    a.to_next_row = (g.dilation_h * plan.padded_w - (g.kernel_w - 1) * g.dilation_w) * row;
  }
  return a;
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  constexpr std::array<WgmmaLaunch (*)(int), kWgmmaParts> kParts = {wgmma_launch<0>, wgmma_launch<1>, wgmma_launch<2>};
  const WgmmaArgs args = arguments(kWgmmaTiles[conv.variant], g, p, data);
  // A launch first tells CUDA how much shared memory the kernel may have, which depends on the shape: another thread
  // must not tell it anew in between.
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  kParts[conv.variant % kWgmmaParts](conv.variant)(args, p.x.is_signed, stream);
}

}  // namespace

const CudaConvFamily& cuda_wgmma_family() {
  static constexpr CudaConvFamily family{wgmma_choices, wgmma_pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
