// SPDX-License-Identifier: Apache-2.0
// How the blocks of a launch find one range together, and how a tensor's quantizer follows it. Include it in .cu files
// only.
#pragma once

#include "kernels/core/launch.cuh"
#include "kernels/training/observe.h"

namespace octet::kernels {

constexpr int kRangeThreads = 256;  // of a block that finds a range

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

}  // namespace octet::kernels
