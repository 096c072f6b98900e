// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of the mma family.
#include "kernels/conv/cuda/mma/mma.h"

#include <utility>

#include "kernels/conv/cuda/mma/load.cuh"

namespace octet::kernels {
namespace {

/// Returns whether, along one axis, the first window begins outside the image or the last ends there.
bool leaves(int in, int out, int kernel, int stride, int pad, int dilation) {
  return pad > 0 || (out - 1) * stride + (kernel - 1) * dilation >= in;
}

MmaArgs arguments(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data) {
  const MmaTile& tile = kMmaTiles[conv.variant];
  const MmaGrid grid(tile, g, data.images);
  const int channels = grid.n_tiles * tile.block_n;
  MmaArgs a{.out = ConvOutput(g, p, data, cuda_channel_constants(data.packed, channels))};
  a.weight = static_cast<const uint8_t*>(data.packed) + cuda_constants_bytes(channels);
  a.x = static_cast<const uint8_t*>(data.x);
  a.g = g;
  a.in_chunks = grid.in_chunks;
  a.image_bytes = g.in_h * g.in_w * g.in_stride;
  a.row_step = g.dilation_h * g.in_w * g.in_stride;
  a.column_step = g.dilation_w * g.in_stride;
  a.by_image = FastDivide(g.out_h * g.out_w);
  a.by_row = FastDivide(g.out_w);
  a.by_kernel_w = FastDivide(g.kernel_w);
  a.by_in_chunks = FastDivide(grid.in_chunks);
  a.by_dilation_h = FastDivide(g.dilation_h);
  a.by_dilation_w = FastDivide(g.dilation_w);
  a.padded = leaves(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h) ||
             leaves(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w);
  a.dense = g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && !a.padded;
  a.padding_word = four_codes(p.x.zero_point);
  a.beside = data.beside;
  a.n_tiles = grid.n_tiles;
  a.k_tiles = grid.k_tiles;
  a.by_n_tiles = FastDivide(grid.n_tiles);
  a.k_per_part = grid.k_tiles / conv.split_k;
  a.k_extra = grid.k_tiles % conv.split_k;
  a.split.parts = conv.split_k;
  a.in_cluster = conv.in_cluster;
  if (mma_workspace(conv, g, data.images) > 0) {
    a.split.counters = static_cast<int32_t*>(data.workspace);
    a.split.partial = a.split.counters + kCudaWorkspaceZeros / sizeof(int32_t);
  }
  return a;
}

template <int... kPart>
MmaLaunch find_launch(int tile, std::integer_sequence<int, kPart...>) {
  constexpr MmaLaunch (*kLaunches[])(int) = {mma_launch<kPart>...};
  return kLaunches[tile % kMmaPartCount](tile);
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const MmaArgs args = arguments(conv, g, p, data);
  const unsigned blocks = MmaGrid(kMmaTiles[conv.variant], g, data.images).tiles();
  find_launch(conv.variant, std::make_integer_sequence<int, kMmaPartCount>())(args, blocks, p.x.is_signed, stream);
}

}  // namespace

const CudaConvFamily& cuda_mma_family() {
  static constexpr CudaConvFamily family{mma_choices, mma_pack, mma_workspace, launch, /*runs_beside=*/true};
  return family;
}

}  // namespace octet::kernels
