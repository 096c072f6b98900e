// One pass over values that ends with one thread knowing their range. Include in .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"
#include "kernels/observe/cuda_observe.h"

namespace octet::kernels {

constexpr int kRangeThreads = 256;
constexpr int kRangeBlocks = 1024;  // fills a GPU; each block ends with atomics on one address
constexpr int kRangeValues = 8;

/// Integers of the same order as the floats; -0 comes before 0.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
}
__device__ inline float unordered(uint32_t key) {
  return __uint_as_float(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}

/// The last block to come here gets true in its thread 0, and the range of all blocks.
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

/// Calls state->take(range of all values) in one thread.
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
  part.lo = values.activation(part.lo);  // which keeps order
  part.hi = values.activation(part.hi);
  if (join_blocks(part, state.blocks())) state.take(part);
}

template <class State>
void launch_range(const ObservedValues& values, State state, CudaStream stream) {
  const long needed = blocks_for(values.count, kRangeThreads * kRangeValues);
  const unsigned blocks = static_cast<unsigned>(std::min<long>(needed, kRangeBlocks));
  with_type(values.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(values.x)) {
      range_kernel<T, true, State><<<blocks, kRangeThreads, 0, stream>>>(values, state);
    } else {
      range_kernel<T, false, State><<<blocks, kRangeThreads, 0, stream>>>(values, state);
    }
  });
}

}  // namespace octet::kernels
