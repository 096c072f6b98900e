// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of inverted residuals: those of kernel.cuh or, in turns, those of turns.cuh.
#include "kernels/groups/groups.h"

#include <mutex>

#include "kernels/groups/inverted_residual/load.cuh"
#include "src/base/error.h"

namespace octet::kernels {
namespace {

InvertedArgs arguments(const CudaInvertedResidual& choice, const InvertedResidual& block,
                       const CudaInvertedResidualData& data) {
  const Conv2dShape &in = block.first().shape, &d = block.depthwise.shape;
  const int channels = inverted_quads(block.project.shape.out_c) * 32;
  const CudaConv2dData last{.images = data.images, .residual = data.residual, .y = data.y};
  const CodeInput& x = block.first().params.x;
  const CodeInput& windows = block.depthwise.params.x;
  return {
      .out = ConvOutput(block.project.shape, block.project.params, last, cuda_channel_constants(data.packed, channels)),
      .hidden = CodeSteps(block.first().params.y),
      .windows = CodeSteps(block.depthwise.params.y),
      .chunk = InvertedChunk(block),
      .tiles = InvertedTiles(choice, block, data.images),
      .shared = InvertedShared(choice, block, data.images),
      .chunks = static_cast<const uint8_t*>(data.packed) + cuda_constants_bytes(channels),
      .x = static_cast<const uint8_t*>(data.x),
      .images = data.images,
      .in_h = in.in_h,
      .in_w = in.in_w,
      .in_stride = in.in_stride,
      .out_h = d.out_h,
      .out_w = d.out_w,
      .pad_h = d.pad_h,
      .pad_w = d.pad_w,
      .tile_w = choice.width,
      .strips = choice.strips,
      .tile_images = choice.images,
      .groups = choice.groups,
      .parts = choice.parts,
      .turns = choice.turns,
      .by_tile_w = FastDivide(choice.width),
      .by_strips = FastDivide(choice.strips),
      .by_halo_w = FastDivide(InvertedTiles(choice, block, data.images).halo_w),
      .by_x_pieces = FastDivide(ceil_div(in.in_c, 16)),
      .has_expand = block.has_expand,
      .flip_x = x.is_signed,
      .outside = four_codes(windows.zero_point + windows_shift(block))};
}

/// Returns the launch of an alternative, or null if no kernel is compiled for it.
InvertedLaunch find_launch(const CudaInvertedResidual& choice, const InvertedResidual& block) {
  const int stride = block.depthwise.shape.stride_h, rows = choice.rows;
  const bool turns = choice.turns > 1;
  switch (inverted_quads(block.project.shape.out_c)) {
    case 1:
      return turns ? inverted_turns_launch<1>(stride, rows) : inverted_launch<1>(stride, rows);
    case 2:
      return turns ? inverted_turns_launch<2>(stride, rows) : inverted_launch<2>(stride, rows);
    case 3:
      return turns ? nullptr : inverted_launch<3>(stride, rows);
    case 5:
      return turns ? nullptr : inverted_launch<5>(stride, rows);
    default:
      return nullptr;
  }
}

}  // namespace

void cuda_inverted_residual(const CudaInvertedResidual& choice, const InvertedResidual& block,
                            const CudaInvertedResidualData& data, CudaStream stream) {
  const InvertedLaunch launch = find_launch(choice, block);
  if (launch == nullptr) throw promise_error("cuda inverted residual: no kernel " + choice.name());
  const InvertedArgs args = arguments(choice, block, data);
  // A launch first sets how much shared memory the kernel may have, which depends on the shape. Another thread must not
  // set it in between.
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  launch(args, stream);
}

}  // namespace octet::kernels
