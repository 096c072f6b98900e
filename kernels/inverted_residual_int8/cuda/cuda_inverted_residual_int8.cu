// Launches the kernels of quads_*.cu and, of blocks that take turns, turns_*.cu.
#include "kernels/inverted_residual_int8/cuda_inverted_residual_int8.h"

#include <mutex>

#include "kernels/inverted_residual_int8/cuda/args.cuh"
#include "src/common/error.h"

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
      .outside = static_cast<uint32_t>(windows.zero_point + windows_shift(block)) * 0x01010101u};
}

}  // namespace

void cuda_inverted_residual(const CudaInvertedResidual& choice, const InvertedResidual& block,
                            const CudaInvertedResidualData& data, CudaStream stream) {
  const int stride = block.depthwise.shape.stride_h;
  InvertedLaunch launch = nullptr;
  switch (inverted_quads(block.project.shape.out_c)) {
    case 1:
      launch =
          choice.turns > 1 ? inverted_turns_launch<1>(stride, choice.rows) : inverted_launch<1>(stride, choice.rows);
      break;
    case 2:
      launch =
          choice.turns > 1 ? inverted_turns_launch<2>(stride, choice.rows) : inverted_launch<2>(stride, choice.rows);
      break;
    case 3:
      if (choice.turns == 1) launch = inverted_launch<3>(stride, choice.rows);
      break;
    case 5:
      if (choice.turns == 1) launch = inverted_launch<5>(stride, choice.rows);
      break;
  }
  if (launch == nullptr) throw promise_error("cuda inverted residual: no kernel " + choice.name());
  const InvertedArgs args = arguments(choice, block, data);
  // A launch first tells CUDA how much shared memory the kernel may have, which depends on the shape: another thread
  // must not tell it anew in between.
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  launch(args, stream);
}

}  // namespace octet::kernels
