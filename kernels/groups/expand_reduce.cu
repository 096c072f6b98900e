// SPDX-License-Identifier: Apache-2.0
// Two 1x1 convolutions, one that widens and one that narrows, in one kernel: which pairs it supports, their packed
// weights, the kernel and its launch.
//
// A cluster of blocks computes a tile of 16 or 32 pixels. Each block computes 128 channels of the wide tensor and sends
// their codes to all other blocks; then each block has the whole tile and computes 32 channels of the narrow tensor.
// The copies of all weights begin before the kernel waits for the previous one.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/cuda.h"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"
#include "kernels/groups/groups.h"

namespace octet::kernels {
namespace {

constexpr int kWide = 128, kNarrow = 32;  ///< channels of the two tensors that a block computes
constexpr int kWarps = 8, kThreads = 32 * kWarps;

/// The layout of a block's shared memory, in bytes. x comes first. Rows are swizzled by mma_swizzle().
struct Layout {
  int x_row, wide_row;  ///< bytes of a pixel of x and of the wide tensor; also of an output channel's weights
  int expand, reduce;   ///< where the weights of the two convolutions begin
  int wide, end;        ///< where the codes of the wide tensor begin and end

  constexpr Layout(int cluster, int pixels)
      : x_row(kNarrow * cluster), wide_row(kWide * cluster), expand(pixels * x_row), reduce(0), wide(0), end(0) {
    const int sums =
        kWarps * pixels * kNarrow * 4;  // bytes of the sums of all warps, which overwrite x and the first weights
    const int first = expand + kWide * x_row;
    reduce = first > sums ? first : sums;
    wide = reduce + kNarrow * wide_row;
    end = wide + pixels * wide_row;
  }
};

/// The layouts of a block's weights: a warp has 16 of the kWide channels, and all of the kNarrow channels.
constexpr MmaTile kExpandTile{.block_n = kWide, .warps_n = kWarps}, kReduceTile{.block_n = kNarrow, .warps_n = 1};

/// Returns the bytes of packed data of a convolution.
size_t packed_bytes(int channels, int in_c) {
  return cuda_constants_bytes(channels) + static_cast<size_t>(channels) * in_c;
}

/// Returns where the second convolution's packed data begins.
size_t reduce_offset(const Conv2dShape& expand) { return (packed_bytes(expand.out_c, expand.in_c) + 255) / 256 * 256; }

struct ExpandReduceArgs {
  ConvOutput expand, reduce;
  const uint8_t *expand_weight, *reduce_weight;  ///< [cluster, kWide, x_row], [cluster, kNarrow, wide_row]
  const uint8_t* x;
  int in_stride;
};

/// Begins to copy a block's weights.
__device__ __forceinline__ void copy_weights(uint32_t shared, const uint8_t* from, int bytes) {
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) copy_async(shared + at, from + at);
}

/// Adds to sums the products of all pixels with 16 channels for every two columns of fragments, over kSteps times 32
/// bytes from `first_step` on. Pixels and weights are rows of kRow bytes.
template <bool kSigned, int kRow, int kSteps, class Sums>
__device__ __forceinline__ void multiply(Sums& sums, uint32_t pixels, uint32_t weights, int first_step) {
  constexpr int kPairs = Sums::kN / 2;
  const int lane = threadIdx.x % 32;
  const uint32_t x = pixels + (lane / 8 % 2 * 8 + lane % 8) * kRow, w = weights + (lane / 16 * 8 + lane % 8) * kRow;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = (first_step + step) * 2;
    const uint32_t x_chunk = mma_swizzle(kRow, lane % 8, chunk + lane / 16) * 16;
    const uint32_t w_chunk = mma_swizzle(kRow, lane % 8, chunk + lane / 8 % 2) * 16;
    uint32_t a[Sums::kM][4], b[kPairs][4];
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) load_matrices(a[m], x + x_chunk + m * 16 * kRow);
#pragma unroll
    for (int n = 0; n < kPairs; ++n) load_matrices(b[n], w + w_chunk + n * 16 * kRow);
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; ++n) {
        multiply_add<kSigned>(sums.value[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

/// Grid: (blocks of a cluster, tiles of pixels).
template <int kCluster, int kPixels, bool kXSigned, bool kWideSigned>
__global__ void __launch_bounds__(kThreads) expand_reduce_kernel(const __grid_constant__ ExpandReduceArgs p) {
  constexpr Layout kLayout(kCluster, kPixels);
  constexpr int kXRow = kLayout.x_row, kWideRow = kLayout.wide_row, kM = kPixels / 16;
  extern __shared__ __align__(128) uint8_t shared_memory[];
  const uint32_t shared = shared_address(shared_memory);
  const int rank = blockIdx.x, first_pixel = blockIdx.y * kPixels;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  arrive_at_cluster();
  copy_weights(shared + kLayout.expand, p.expand_weight + static_cast<ptrdiff_t>(rank) * kWide * kXRow, kWide * kXRow);
  copy_weights(shared + kLayout.reduce, p.reduce_weight + static_cast<ptrdiff_t>(rank) * kNarrow * kWideRow,
               kNarrow * kWideRow);
  const int wide_channel = rank * kWide + warp * 16 + lane % 4 * 4, wide_pixel = first_pixel + lane / 4;
  Fragments<kM, 2> sums;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int2 start = *reinterpret_cast<const int2*>(p.expand.constants.init + wide_channel + n * 2);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      sums.value[m][n][0] = sums.value[m][n][2] = start.x;
      sums.value[m][n][1] = sums.value[m][n][3] = start.y;
    }
  }
  OutputOperands<Fragments<kM, 2>> operands;
  operands.load_constants(p.expand, wide_channel);
  // A thread of the first 4 kM warps finishes one word of the narrow tensor, from these rows and columns of all warps'
  // sums.
  const int m = warp / 4, pair = warp / 2 % 2, upper = warp % 2;
  const int narrow_channel = rank * kNarrow + lane % 4 * 8 + pair * 4;
  const int4 start = *reinterpret_cast<const int4*>(p.reduce.constants.init + narrow_channel);
  const float4 multiplier = *reinterpret_cast<const float4*>(p.reduce.constants.multiplier + narrow_channel);
  const float4 bias = *reinterpret_cast<const float4*>(p.reduce.constants.bias + narrow_channel);

  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < kPixels * kXRow / 16; i += kThreads) {
    const int row = i / (kXRow / 16), chunk = i % (kXRow / 16);
    const int pixel = min(first_pixel + row, p.expand.pixels - 1);  // repetitions of the last pixel are not stored
    copy_async(shared + row * kXRow + mma_swizzle(kXRow, row, chunk) * 16,
               p.x + static_cast<ptrdiff_t>(pixel) * p.in_stride + chunk * 16);
  }
  copy_async_commit();
  const bool added = p.expand.residual != nullptr;
  if (added) operands.load_residual(p.expand, wide_pixel, wide_channel);
  copy_async_wait<0>();
  __syncthreads();
  multiply<kXSigned, kXRow, kXRow / 32>(sums, shared, shared + kLayout.expand + warp * 16 * kXRow, 0);

  const auto wide_at = [&](int row, int chunk) {
    return kLayout.wide + row * kWideRow + mma_swizzle(kWideRow, row, chunk) * 16;
  };
  const ResidualCodes residual(p.expand.epilogue);
#pragma unroll
  for (int row = 0; row < 2 * kM; ++row) {
    const int32_t(&left)[4] = sums.value[row / 2][0], (&right)[4] = sums.value[row / 2][1];
    const int32_t acc[4] = {left[row % 2 * 2], left[row % 2 * 2 + 1], right[row % 2 * 2], right[row % 2 * 2 + 1]};
    uint32_t codes[1] = {
        added ? finish_codes<true>(p.expand, residual, acc, operands.multiplier[0], operands.bias[0],
                                   operands.residual[row].word[0])
              : finish_codes<false>(p.expand, residual, acc, operands.multiplier[0], operands.bias[0], 0)};
    p.expand.rounding.finish(codes);
    uint8_t* to = shared_memory + wide_at(lane / 4 + row * 8, rank * (kWide / 16) + warp) + lane % 4 * 4;
    *reinterpret_cast<uint32_t*>(to) = codes[0];
  }
  __syncthreads();
  wait_for_cluster();  // all blocks have begun
  static_assert(kPixels * kWide <= kThreads * 16, "a thread sends 16 codes");
  const int row = threadIdx.x / (kWide / 16), chunk = rank * (kWide / 16) + threadIdx.x % (kWide / 16);
  const bool sends = row < kPixels;
  int4 codes;
  if (sends) {
    const int at = wide_at(row, chunk);
    codes = *reinterpret_cast<const int4*>(shared_memory + at);
#pragma unroll
    for (int other = 1; other < kCluster; ++other) {
      store_to_cluster(address_in_block(shared + at, (rank + other) % kCluster), codes);
    }
  }
  arrive_at_cluster_with_writes();
  if (sends && first_pixel + row < p.expand.pixels) {
    uint8_t* to = static_cast<uint8_t*>(p.expand.y) + static_cast<ptrdiff_t>(first_pixel + row) * p.expand.out_stride;
    *reinterpret_cast<int4*>(to + chunk * 16) = codes;
  }
  wait_for_cluster();

  Fragments<kM, 4> parts = {};
  multiply<kWideSigned, kWideRow, kWideRow / 32 / kWarps>(parts, shared + kLayout.wide, shared + kLayout.reduce,
                                                          warp * (kWideRow / 32 / kWarps));
  int4* all = reinterpret_cast<int4*>(shared_memory);  // [warp][kM][4][32]; no block reads what was there any more
#pragma unroll
  for (int i = 0; i < 4 * kM; ++i) {
    const int32_t(&v)[4] = parts.value[i / 4][i % 4];
    all[(warp * 4 * kM + i) * 32 + lane] = make_int4(v[0], v[1], v[2], v[3]);
  }
  __syncthreads();
  if (m >= kM) return;
  int32_t acc[4] = {start.x, start.y, start.z, start.w};
#pragma unroll
  for (int part = 0; part < kWarps; ++part) {
    const int2* of_part = reinterpret_cast<const int2*>(all + ((part * kM + m) * 4 + pair * 2) * 32 + lane) + upper;
    const int2 left = of_part[0], right = of_part[64];
    acc[0] += left.x, acc[1] += left.y, acc[2] += right.x, acc[3] += right.y;
  }
  uint32_t narrow[1] = {finish_codes<false>(p.reduce, ResidualCodes(p.reduce.epilogue), acc, multiplier, bias, 0)};
  p.reduce.rounding.finish(narrow);
  const int pixel = first_pixel + m * 16 + upper * 8 + lane / 4;
  if (pixel < p.reduce.pixels) {
    uint8_t* to = static_cast<uint8_t*>(p.reduce.y) + static_cast<ptrdiff_t>(pixel) * p.reduce.out_stride;
    *reinterpret_cast<uint32_t*>(to + narrow_channel) = narrow[0];
  }
}

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
