// SPDX-License-Identifier: Apache-2.0
// Two 1x1 convolutions, one that widens and one that narrows, in one kernel: which pairs it supports, their packed
// weights, and the launch. The kernel is in expand_reduce.cuh.
#include "kernels/groups/expand_reduce.cuh"

#include <algorithm>
#include <cstring>

#include "kernels/core/cuda.h"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

using namespace expand_reduce;

// What a multiprocessor has for concurrent blocks: bytes of shared memory, and threads by the registers of each. Both
// are approximate: no test limits the registers, and clusters of 16 may leave multiprocessors of a GPC unused.
constexpr int kMostBytes = cuda_shared_limit(90), kMostThreads = 768;

bool is_pointwise(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0 &&
         g.groups == 1 && g.out_h == g.in_h && g.out_w == g.in_w && g.in_stride % 16 == 0 && g.out_stride % 16 == 0;
}

std::vector<uint8_t> pack(const ConvNode& conv, const MmaTile& tile) {
  const Conv2dShape& g = conv.shape;
  std::vector<uint8_t> packed = cuda_pack_constants(g, conv.params, conv.weights, g.out_c,
                                                    packed_bytes(g.out_c, g.in_c) - cuda_constants_bytes(g.out_c));
  uint8_t* weight = packed.data() + cuda_constants_bytes(g.out_c);
  for (int k = 0; k < g.out_c; ++k) {
    const int row = mma_weight_row(tile, k % tile.block_n);
    uint8_t* to = weight + static_cast<size_t>(k / tile.block_n * tile.block_n + row) * g.in_c;
    for (int chunk = 0; chunk < g.in_c / 16; ++chunk) {
      std::memcpy(to + mma_swizzle(g.in_c, row, chunk) * 16,
                  conv.weights.weight + static_cast<size_t>(k) * g.in_c + chunk * 16, 16);
    }
  }
  return packed;
}

}  // namespace

std::vector<CudaExpandReduce> cuda_expand_reduce_choices(const ExpandReduce& layers, int images, const CudaGpu& gpu) {
  const Conv2dShape &wide = layers.expand.shape, &narrow = layers.reduce.shape;
  const int cluster = wide.in_c / kNarrow;
  const bool known = cluster == 2 || cluster == 4 || cluster == 8 || cluster == 16;
  const bool fits = wide.in_c == kNarrow * cluster && wide.out_c == kWide * cluster && narrow.in_c == wide.out_c &&
                    narrow.out_c == wide.in_c && narrow.in_stride == wide.out_stride && narrow.in_h == wide.out_h &&
                    narrow.in_w == wide.out_w;
  const CodeOutput& between = layers.expand.params.y;
  const CodeInput& read = layers.reduce.params.x;
  const bool same_codes = read.is_signed == between.is_signed && read.zero_point == between.zero_point;
  const bool plain = !layers.reduce.params.has_residual && !layers.expand.params.y.float_output &&
                     !layers.reduce.params.y.float_output &&
                     (!layers.expand.params.has_residual || wide.residual_stride % 16 == 0);
  if (gpu.capability != 90 || !known || !fits || !same_codes || !plain || !is_pointwise(wide) || !is_pointwise(narrow))
    return {};
  std::vector<CudaExpandReduce> choices;
  for (const int pixels : {16, 32}) {
    const int tiles = ceil_div(images * wide.out_h * wide.out_w, pixels);
    const int on_each = std::min(kMostBytes / Layout(cluster, pixels).end, kMostThreads / kThreads);
    if (tiles * cluster <= on_each * gpu.multiprocessors) choices.push_back({cluster, pixels});
  }
  return choices;
}

std::vector<uint8_t> cuda_expand_reduce_pack(const ExpandReduce& layers) {
  std::vector<uint8_t> packed = pack(layers.expand, kExpandTile);
  packed.resize(reduce_offset(layers.expand.shape));
  const std::vector<uint8_t> reduce = pack(layers.reduce, kReduceTile);
  packed.insert(packed.end(), reduce.begin(), reduce.end());
  return packed;
}

namespace {

using Kernel = void (*)(ExpandReduceArgs);

template <int kCluster, int kPixels>
Kernel kernel_of(bool x_signed, bool wide_signed) {
  if (x_signed) {
    return wide_signed ? expand_reduce_kernel<kCluster, kPixels, true, true>
                       : expand_reduce_kernel<kCluster, kPixels, true, false>;
  }
  return wide_signed ? expand_reduce_kernel<kCluster, kPixels, false, true>
                     : expand_reduce_kernel<kCluster, kPixels, false, false>;
}

template <int kCluster>
Kernel kernel_of(int pixels, bool x_signed, bool wide_signed) {
  return pixels == 16 ? kernel_of<kCluster, 16>(x_signed, wide_signed) : kernel_of<kCluster, 32>(x_signed, wide_signed);
}

Kernel kernel_of(const CudaExpandReduce& choice, bool x_signed, bool wide_signed) {
  switch (choice.cluster) {
    case 2:
      return kernel_of<2>(choice.pixels, x_signed, wide_signed);
    case 4:
      return kernel_of<4>(choice.pixels, x_signed, wide_signed);
    case 8:
      return kernel_of<8>(choice.pixels, x_signed, wide_signed);
    default:
      return kernel_of<16>(choice.pixels, x_signed, wide_signed);
  }
}

}  // namespace

void cuda_expand_reduce(const CudaExpandReduce& choice, const ExpandReduce& layers, const CudaExpandReduceData& data,
                        CudaStream stream) {
  const Conv2dShape &wide = layers.expand.shape, &narrow = layers.reduce.shape;
  const Conv2dParams &expand = layers.expand.params, &reduce = layers.reduce.params;
  const uint8_t* first = static_cast<const uint8_t*>(data.packed);
  const uint8_t* second = first + reduce_offset(wide);
  const CudaConv2dData of_expand{.images = data.images, .residual = data.residual, .y = data.wide};
  const CudaConv2dData of_reduce{.images = data.images, .y = data.narrow};
  const ExpandReduceArgs args{
      .expand = ConvOutput(wide, expand, of_expand, cuda_channel_constants(first, wide.out_c)),
      .reduce = ConvOutput(narrow, reduce, of_reduce, cuda_channel_constants(second, narrow.out_c)),
      .expand_weight = first + cuda_constants_bytes(wide.out_c),
      .reduce_weight = second + cuda_constants_bytes(narrow.out_c),
      .x = static_cast<const uint8_t*>(data.x),
      .in_stride = wide.in_stride};
  const Kernel kernel = kernel_of(choice, expand.x.is_signed, reduce.x.is_signed);
  const int shared = Layout(choice.cluster, choice.pixels).end;
  const char* name = "expand_reduce";
  check_launch(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  if (choice.cluster > 8) {
    check_launch(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
  const int tiles = ceil_div(args.expand.pixels, choice.pixels);
  launch_overlapped_clusters(kernel, dim3(choice.cluster, tiles), dim3(choice.cluster), kThreads, shared, stream, args);
  check_launch(name);
}

}  // namespace octet::kernels
