// A cluster of blocks has a tile of 16 or 32 pixels. Each block computes 128 channels of the wide tensor and hands
// their codes to all others; then each has the whole tile and computes 32 channels of the narrow one. All weights are
// on their way before the kernel waits for the one before it.
#include "kernels/ceil_div.h"
#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/ptx.cuh"
#include "kernels/cuda_cluster.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/expand_reduce_int8/cuda_expand_reduce_int8.h"
#include "kernels/expand_reduce_int8/layout.h"

namespace octet::kernels {
namespace {

using namespace expand_reduce;

struct ExpandReduceArgs {
  ConvOutput expand, reduce;
  const uint8_t *expand_weight, *reduce_weight;  ///< [cluster, kWide, x_row], [cluster, kNarrow, wide_row]
  const uint8_t* x;
  int in_stride;
};

/// A block's weights, `bytes` from `from`.
__device__ __forceinline__ void copy_weights(uint32_t shared, const uint8_t* from, int bytes) {
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) copy_async(shared + at, from + at);
}

/// Products of all pixels and 16 channels for each two columns of fragments, over kSteps times 32 bytes from
/// `first_step` on: rows of kRow bytes.
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
  // A thread of the first 4 kM warps ends one word of the narrow tensor: these rows and columns of the warps' sums.
  const int m = warp / 4, pair = warp / 2 % 2, upper = warp % 2;
  const int narrow_channel = rank * kNarrow + lane % 4 * 8 + pair * 4;
  const int4 start = *reinterpret_cast<const int4*>(p.reduce.constants.init + narrow_channel);
  const float4 multiplier = *reinterpret_cast<const float4*>(p.reduce.constants.multiplier + narrow_channel);
  const float4 bias = *reinterpret_cast<const float4*>(p.reduce.constants.bias + narrow_channel);

  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < kPixels * kXRow / 16; i += kThreads) {
    const int row = i / (kXRow / 16), chunk = i % (kXRow / 16);
    const int pixel = min(first_pixel + row, p.expand.pixels - 1);  // nobody stores what repeats the last one
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
  static_assert(kPixels * kWide <= kThreads * 16, "a thread hands on 16 codes");
  const int row = threadIdx.x / (kWide / 16), chunk = rank * (kWide / 16) + threadIdx.x % (kWide / 16);
  const bool hands_on = row < kPixels;
  int4 codes;
  if (hands_on) {
    const int at = wide_at(row, chunk);
    codes = *reinterpret_cast<const int4*>(shared_memory + at);
#pragma unroll
    for (int other = 1; other < kCluster; ++other) {
      store_to_cluster(address_in_block(shared + at, (rank + other) % kCluster), codes);
    }
  }
  arrive_at_cluster_with_writes();
  if (hands_on && first_pixel + row < p.expand.pixels) {
    uint8_t* to = static_cast<uint8_t*>(p.expand.y) + static_cast<ptrdiff_t>(first_pixel + row) * p.expand.out_stride;
    *reinterpret_cast<int4*>(to + chunk * 16) = codes;
  }
  wait_for_cluster();

  Fragments<kM, 4> parts = {};
  multiply<kWideSigned, kWideRow, kWideRow / 32 / kWarps>(parts, shared + kLayout.wide, shared + kLayout.reduce,
                                                          warp * (kWideRow / 32 / kWarps));
  int4* all = reinterpret_cast<int4*>(shared_memory);  // [warp][kM][4][32]; every block is done with what lay there
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
