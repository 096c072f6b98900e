// SPDX-License-Identifier: Apache-2.0
// Observers on the GPU: what they find stays there. The blocks of a launch find one range together, of a tensor's
// values or of the sums that norm_quantize.h rounds.
#include "kernels/training/observe.h"

#include <algorithm>

#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"
#include "kernels/training/norm_quantize.cuh"

namespace octet::kernels {
namespace {

constexpr int kRangeThreads = 256;            // of a block that finds a range
constexpr int kRangeBlocks = 1024;            // fills a GPU; each block ends with atomics on one address
constexpr int kRangeValues = 8;               // values of a thread at a time
constexpr int kThreads = 512, kBlocks = 512;  // of count_kernel and widen_kernel

/// Returns an integer for a float, in the same order (-0 precedes 0); unordered() is its inverse.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
}
__device__ inline float unordered(uint32_t key) {
  return __uint_as_float(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}

/// Joins the ranges of all threads of a launch. Returns true to thread 0 of the last block that arrives, whose `part`
/// becomes the range of all blocks.
__device__ inline bool join_blocks(ValueRange& part, ObserverBlocks& blocks) {
  __shared__ float lowest[kRangeThreads / 32], highest[kRangeThreads / 32];
  for (int other = 16; other > 0; other /= 2) {
    part.lo = fminf(part.lo, __shfl_xor_sync(0xffffffff, part.lo, other));
    part.hi = fmaxf(part.hi, __shfl_xor_sync(0xffffffff, part.hi, other));
  }
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    lowest[warp] = part.lo;
    highest[warp] = part.hi;
  }
  const bool damaged = __syncthreads_or(!part.finite) != 0;
  if (threadIdx.x != 0) return false;
  for (int w = 1; w < kRangeThreads / 32; ++w) {
    part.lo = fminf(part.lo, lowest[w]);
    part.hi = fmaxf(part.hi, highest[w]);
  }
  atomicMin(&blocks.lowest, ordered(part.lo));
  atomicMax(&blocks.highest, ordered(part.hi));
  if (damaged) atomicOr(&blocks.damaged, 1u);
  __threadfence();  // before this block is counted
  if (atomicInc(&blocks.done, gridDim.x - 1) != gridDim.x - 1) return false;
  __threadfence();  // after all others were; `done` is 0 again, and the rest follows
  part.lo = unordered(atomicExch(&blocks.lowest, 0xffffffffu));
  part.hi = unordered(atomicExch(&blocks.highest, 0u));
  part.finite = atomicExch(&blocks.damaged, 0u) == 0 && fmaxf(-part.lo, part.hi) <= kLargestObserved;
  return true;
}

/// Moves an EdgeQuantizer.
struct FollowRange {
  EdgeQuantizer* edge;

  __device__ ObserverBlocks& blocks() const { return edge->blocks; }
  __device__ void take(const ValueRange& batch) const {
    if (!batch.finite) {
      edge->not_finite = 1;
      return;
    }
    const ValueRange taken = limited_range(edge->range, batch, edge->averaging);
    const RunningRange range = follow(edge->range, taken, edge->averaging);
    edge->range = range;
    edge->qparams = qparams_of_range(range.lo, range.hi, edge->qparams, edge->affine != 0);
  }
};

/// Finds the range of all values in one pass and calls state.take(range) in one thread.
template <class T, bool kWide, class State>
__global__ void __launch_bounds__(kRangeThreads) range_kernel(ObservedValues values, State state) {
  const T* x = static_cast<const T*>(values.x);
  ValueRange part{INFINITY, -INFINITY, true};
  float zero = 0;
  constexpr long kBlock = static_cast<long>(kRangeThreads) * kRangeValues;
  const long stride = kBlock * gridDim.x;
  const auto take = [&](T raw) {
    const float value = widen(raw);
    part.lo = fminf(part.lo, value);
    part.hi = fmaxf(part.hi, value);
    zero = fmaf(value, 0.0f, zero);  // NaN for NaN and infinity
  };
  long at = kBlock * blockIdx.x + static_cast<long>(threadIdx.x) * kRangeValues;
#pragma unroll 4
  for (; at + kRangeValues <= values.count; at += stride) {
    const Pack<T, kRangeValues> pack = load<kRangeValues, kWide>(x + at, kRangeValues);
#pragma unroll
    for (int i = 0; i < kRangeValues; ++i) take(pack.value[i]);
  }
  for (; at < values.count; ++at) take(x[at]);
  part.finite = zero == 0.0f;
  part.lo = values.activation(part.lo);  // a clamp is monotone
  part.hi = values.activation(part.hi);
  if (join_blocks(part, state.blocks())) state.take(part);
}

/// Launches range_kernel().
template <class State>
void launch_range(const ObservedValues& values, State state, CudaStream stream) {
  const long needed = blocks_for(values.count, kRangeThreads * kRangeValues);
  const unsigned blocks = static_cast<unsigned>(std::min<long>(needed, kRangeBlocks));
  with_width(values.type, is_aligned(values.x), [&](auto type, auto wide) {
    range_kernel<decltype(type), wide(), State><<<blocks, kRangeThreads, 0, stream>>>(values, state);
  });
}

}  // namespace

void cuda_observe(const ObservedValues& values, EdgeQuantizer* edge, CudaStream stream) {
  if (values.count == 0) return;
  launch_range(values, FollowRange{edge}, stream);
  check_launch("observe");
}

namespace {

/// Computes the sums of min(left, kRangeValues) neighbouring values in flat memory.
template <class T>
__device__ void flat_sums(const NormQuantization& work, long at, long left, float (&sum)[kRangeValues]) {
  const int channels = work.x.channels;
  const float* gain = work.numbers + static_cast<long>(kNormGain) * channels;
  const float* offset = work.numbers + static_cast<long>(kNormOffset) * channels;
  int c = static_cast<int>(at % channels);
#pragma unroll
  for (int i = 0; i < kRangeValues; ++i) {
    sum[i] = 0;
    if (i < left) {
      sum[i] = widen(narrow<T>(fmaf(widen(static_cast<const T*>(work.x.x)[at + i]), gain[c], offset[c])));
      if (work.residual != nullptr) sum[i] += widen(static_cast<const T*>(work.residual)[at + i]);
    }
    c = c + 1 == channels ? 0 : c + 1;
  }
}

template <class T>
__global__ void __launch_bounds__(kRangeThreads)
    norm_observe_kernel(NormQuantization work, long count, FollowRange state) {
  ValueRange part{INFINITY, -INFINITY, true};
  float zero = 0;
  const long stride = static_cast<long>(kRangeThreads) * kRangeValues * gridDim.x;
  long at = (static_cast<long>(blockIdx.x) * kRangeThreads + threadIdx.x) * kRangeValues;
  for (; at < count; at += stride) {
    float sum[kRangeValues];
    flat_sums<T>(work, at, count - at, sum);
#pragma unroll
    for (int i = 0; i < kRangeValues; ++i) {
      if (at + i >= count) break;
      part.lo = fminf(part.lo, sum[i]);
      part.hi = fmaxf(part.hi, sum[i]);
      zero = fmaf(sum[i], 0.0f, zero);  // NaN for NaN and infinity
    }
  }
  part.finite = zero == 0.0f;
  part.lo = work.activation(part.lo);  // a clamp is monotone
  part.hi = work.activation(part.hi);
  if (join_blocks(part, state.blocks())) state.take(part);
}

}  // namespace

void cuda_norm_observe(const NormQuantization& work, EdgeQuantizer* edge, CudaStream stream) {
  const long count = work.x.rows * work.x.channels;
  const unsigned blocks = std::min<unsigned>(blocks_for(count, kRangeThreads * kRangeValues), kRangeBlocks);
  norm_quantize::with_half(work.x.type, [&](auto type) {
    norm_observe_kernel<decltype(type)><<<blocks, kRangeThreads, 0, stream>>>(work, count, FollowRange{edge});
  });
  check_launch("norm_observe");
}

namespace {

/// Moves a histogram's range and finds the bins that it needs.
struct FindBins {
  EdgeHistogram* histogram;

  __device__ ObserverBlocks& blocks() const { return histogram->blocks; }
  __device__ void take(const ValueRange& batch) const {
    EdgeHistogram& h = *histogram;
    if (!batch.finite) h.not_finite = 1;
    if (h.not_finite != 0) return;
    h.range = follow(h.range, batch, 0);
    const int exponent = h.bins.count == 0 ? kSmallestExponent : ilogbf(h.bins.width);
    h.wider = bins_for(h.range.lo, h.range.hi, exponent, kEdgeBins);
  }
};

/// A single block moves the counts into the wider bins.
__global__ void __launch_bounds__(kThreads) widen_kernel(EdgeHistogram* histogram) {
  EdgeHistogram& h = *histogram;
  const Bins old = h.bins, wider = h.wider;
  const bool same = old.count != 0 && old.width == wider.width && old.first == wider.first;
  if (h.not_finite != 0 || same) return;
  __shared__ unsigned long long counts[kEdgeBins];
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < old.count; i += kThreads) {
    if (h.counts[i] != 0) atomicAdd(&counts[bin_within(old, i, wider)], h.counts[i]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) h.counts[i] = counts[i];
  if (threadIdx.x == 0) h.bins = wider;
}

/// Counts values into the histogram's bins.
template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads) count_kernel(ObservedValues values, EdgeHistogram* histogram) {
  constexpr int kValues = 8;
  if (histogram->not_finite != 0) return;
  __shared__ uint32_t counts[kEdgeBins];
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  const T* x = static_cast<const T*>(values.x);
  const int first = histogram->bins.first;
  const float inverse_width = 1.0f / histogram->bins.width;
  const long stride = static_cast<long>(kThreads) * kValues * gridDim.x;
  uint32_t zeros = 0;  // counted separately: half of all values may be zero after ReLU, and would wait for one counter
  for (long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues; at < values.count; at += stride) {
    const Pack<T, kValues> pack = load<kValues, kWide>(x + at, values.count - at);
    for (int i = 0; i < kValues && at + i < values.count; ++i) {
      const int bin = bin_of(values.activation(widen(pack.value[i])), inverse_width, first);
      if (bin == -first) {
        ++zeros;
      } else {
        atomicAdd(&counts[bin], 1u);
      }
    }
  }
  if (zeros != 0) atomicAdd(&counts[-first], zeros);
  __syncthreads();
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&histogram->counts[i], static_cast<unsigned long long>(counts[i]));
  }
}

}  // namespace

void cuda_count(const ObservedValues& values, EdgeHistogram* histogram, CudaStream stream) {
  if (values.count == 0) return;
  launch_range(values, FindBins{histogram}, stream);
  check_launch("histogram's range");
  widen_kernel<<<1, kThreads, 0, stream>>>(histogram);
  check_launch("histogram's widening");
  const unsigned blocks = std::min<unsigned>(blocks_for(values.count, kThreads * 8), kBlocks);
  with_width(values.type, is_aligned(values.x), [&](auto type, auto wide) {
    count_kernel<decltype(type), wide()><<<blocks, kThreads, 0, stream>>>(values, histogram);
  });
  check_launch("histogram");
}

}  // namespace octet::kernels
