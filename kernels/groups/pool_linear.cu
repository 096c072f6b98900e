// SPDX-License-Identifier: Apache-2.0
// A global average and the linear layer behind it, for few images. A block has a warp for each of 8 outputs, whose
// weights are loaded to registers before the kernel waits for the previous one. Each block of a cluster averages a part
// of the channels and writes the codes to all blocks.
#include "kernels/core/divide.h"
#include "kernels/groups/groups.h"

#include <cstring>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kVector = 16;  // channels that a thread averages, or multiplies, at once
constexpr int kMaxChannels = 2048;
constexpr int kHeld = kMaxChannels / kVector / 32;      // vectors of weights that a lane holds
constexpr int kLanes = 16, kParts = kThreads / kLanes;  // a block averages kLanes vectors of kParts pixels at once
constexpr int kAhead = 4;                               // loads in flight

struct PoolLinearArgs {
  AverageArgs average;
  CudaEpilogue epilogue;
  CodeLookup no_lookup;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [out_c rounded up to kWarps][vectors]
  const uint8_t* x;
  void* y;
  int pixels, in_stride, vectors, cluster, out_c, out_stride;
};

/// Averages the channels of vectors [first, last) of an image and writes their codes to all blocks of the cluster.
__device__ __forceinline__ void average_vectors(const PoolLinearArgs& a, const uint8_t* x, int first, int last,
                                                int32_t* sums, uint8_t* codes) {
  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes, vector = first + lane;
  int32_t sum[kVector] = {};
  if (vector < last) {
    for (int i = part; i < a.pixels; i += kAhead * kParts) {
      CodeVector<kVector> ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int pixel = i + j * kParts;
        if (pixel < a.pixels) {
          ahead[j] = CodeVector<kVector>::load(x + static_cast<ptrdiff_t>(pixel) * a.in_stride + vector * kVector);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (i + j * kParts < a.pixels) add_codes<kVector>(ahead[j], a.average.x.flip, sum);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; i += 4) {
    *reinterpret_cast<int4*>(&sums[(part * kLanes + lane) * kVector + i]) = {sum[i], sum[i + 1], sum[i + 2],
                                                                             sum[i + 3]};
  }
  __syncthreads();
  int32_t total = 0;  // sum of channel threadIdx.x
#pragma unroll
  for (int i = 0; i < kParts; ++i) total += sums[i * kThreads + threadIdx.x];
  const uint32_t code = a.average.rounding(a.average.value(total, a.pixels)) & 0xFF;
  uint32_t word = code << threadIdx.x % 4 * 8;
  word |= __shfl_xor_sync(~0u, word, 1);
  word |= __shfl_xor_sync(~0u, word, 2);
  const int channel = first * kVector + static_cast<int>(threadIdx.x) / 4 * 4;
  if (channel < last * kVector) {
    if (a.cluster == 1) {
      if (threadIdx.x % 4 == 0) *reinterpret_cast<uint32_t*>(codes + channel) = word;
    } else {
      for (int rank = threadIdx.x % 4; rank < a.cluster; rank += 4) {
        store_to_cluster(address_in_block(shared_address(codes + channel), rank), word);
      }
    }
  }
}

/// Grid: (blocks of outputs, in clusters; images).
template <bool kSigned>
__global__ void __launch_bounds__(kThreads) pool_linear_kernel(const __grid_constant__ PoolLinearArgs a) {
  __shared__ __align__(16) int32_t sums[kParts * kThreads];
  __shared__ __align__(16) uint8_t codes[kMaxChannels];
  if (a.cluster > 1) arrive_at_cluster();
  const int lane = threadIdx.x % 32, k = blockIdx.x * kWarps + threadIdx.x / 32;
  uint4 weight[kHeld];  // no kernel writes weights
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int vector = i * 32 + lane;
    weight[i] = k < a.out_c && vector < a.vectors ? __ldg(a.weight + static_cast<ptrdiff_t>(k) * a.vectors + vector)
                                                  : make_uint4(0, 0, 0, 0);
  }
  wait_for_previous_kernel();

  const int rank = blockIdx.x % a.cluster, share = (a.vectors + a.cluster - 1) / a.cluster;
  const int begin = rank * share, end = min(begin + share, a.vectors);
  const uint8_t* x = a.x + static_cast<ptrdiff_t>(blockIdx.y) * a.pixels * a.in_stride;
  if (a.cluster > 1) wait_for_cluster();  // all blocks have begun, so their memory may be written
  for (int first = begin; first < end; first += kLanes) {
    if (first > begin) __syncthreads();  // all threads have read the sums
    average_vectors(a, x, first, min(first + kLanes, end), sums, codes);
  }
  if (a.cluster > 1) {
    arrive_at_cluster_with_writes();
    wait_for_cluster();
  } else {
    __syncthreads();
  }

  int32_t acc = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int vector = i * 32 + lane;
    if (vector >= a.vectors) break;
    const uint4 v = *reinterpret_cast<const uint4*>(codes + vector * kVector);
    acc = dot4<kSigned>(v.x, weight[i].x, acc);
    acc = dot4<kSigned>(v.y, weight[i].y, acc);
    acc = dot4<kSigned>(v.z, weight[i].z, acc);
    acc = dot4<kSigned>(v.w, weight[i].w, acc);
  }
  acc = __reduce_add_sync(~0u, acc);
  if (lane > 0 || k >= a.out_c) return;
  const float t = rescale(acc + a.constants.init[k], a.constants.multiplier[k], a.constants.bias[k]);
  finish_output(a.epilogue, a.no_lookup, t, nullptr, 0, a.y, static_cast<ptrdiff_t>(blockIdx.y) * a.out_stride + k);
}

int vectors_of(const PoolLinear& layers) { return (layers.linear.in_c + kVector - 1) / kVector; }

}  // namespace

std::string CudaPoolLinear::name() const {
  return cluster > 1 ? "avg_pool_linear_c" + std::to_string(cluster) : "avg_pool_linear";
}

std::vector<CudaPoolLinear> cuda_pool_linear_choices(const PoolLinear& layers, int images, const CudaGpu& gpu) {
  const PoolShape& s = layers.pool;
  const bool global = s.kernel_h == s.in_h && s.kernel_w == s.in_w && s.pad_h == 0 && s.pad_w == 0 && s.out_h == 1 &&
                      s.out_w == 1 && !layers.pool_params.y.float_output;
  if (!global || s.in_stride % kVector != 0 || s.channels > kMaxChannels || s.channels != layers.linear.in_c ||
      layers.linear_params.has_residual || images > kPoolLinearImages || gpu.capability < 80) {
    return {};
  }
  std::vector<CudaPoolLinear> choices;
  if (gpu.capability >= 90) choices = {{8}, {4}};
  choices.push_back({1});
  return choices;
}

std::vector<uint8_t> cuda_pool_linear_pack(const PoolLinear& layers) {
  const Conv2dShape& g = layers.linear;
  const int channels = round_up(g.out_c, kWarps);
  const size_t row = static_cast<size_t>(vectors_of(layers)) * kVector;
  std::vector<uint8_t> packed = cuda_pack_constants(g, layers.linear_params, layers.weights, channels, channels * row);
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    std::memcpy(weight + k * row, layers.weights.weight + static_cast<ptrdiff_t>(k) * g.in_c, g.in_c);
  }
  return packed;
}

void cuda_pool_linear(const CudaPoolLinear& choice, const PoolLinear& layers, const CudaPoolLinearData& data,
                      CudaStream stream) {
  const AvgPoolParams& average = layers.pool_params;
  const Conv2dShape& g = layers.linear;
  const int channels = round_up(g.out_c, kWarps);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const PoolLinearArgs args{.average = {UnsignedEdge(average.x), average.multiplier, CudaRounding(average.y), false},
                            .epilogue = CudaEpilogue(layers.linear_params),
                            .no_lookup = CodeLookup(CudaConv2dData{}),
                            .constants = cuda_channel_constants(packed, channels),
                            .weight = reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
                            .x = static_cast<const uint8_t*>(data.x),
                            .y = data.y,
                            .pixels = layers.pool.in_h * layers.pool.in_w,
                            .in_stride = layers.pool.in_stride,
                            .vectors = vectors_of(layers),
                            .cluster = choice.cluster,
                            .out_c = g.out_c,
                            .out_stride = g.out_stride};
  const int blocks = round_up(channels / kWarps, choice.cluster);
  launch_overlapped_clusters(average.y.is_signed ? pool_linear_kernel<true> : pool_linear_kernel<false>,
                             dim3(blocks, data.images), dim3(choice.cluster), kThreads, 0, stream, args);
  check_launch("avg_pool_linear");
}

}  // namespace octet::kernels
