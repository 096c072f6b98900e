// Sums over a block. Include in .cu files only.
#pragma once

namespace octet::kernels {

/// Of all kThreads threads, in a fixed order, for thread 0. Every thread of the block must call it.
template <int kThreads>
__device__ float block_sum(float value) {
  __shared__ float of_warp[kThreads / 32];
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffff, value, other);
  __syncthreads();  // an earlier sum was read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) value += of_warp[warp];
  }
  return value;
}

/// The same, written to *part.
template <int kThreads>
__device__ void write_part(float value, float* part) {
  const float sum = block_sum<kThreads>(value);
  if (threadIdx.x == 0) *part = sum;
}

}  // namespace octet::kernels
