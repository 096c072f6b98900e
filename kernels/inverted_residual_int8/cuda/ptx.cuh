// PTX instructions that inverted residuals use beside those of the mma convolution and of clusters (PTX ISA 8.x).
#pragma once

#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

/// sum * multiplier + bias, rounded once, between 0 and 1.
__device__ __forceinline__ float rescale_to_unit(int32_t sum, float multiplier, float bias) {
  float scaled;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(scaled) : "f"(static_cast<float>(sum)), "f"(multiplier), "f"(bias));
  return scaled;
}

/// All `threads` threads of a block that name this barrier, of 1 to 15, have come here, and see what each wrote before.
template <int kBarrier>
__device__ __forceinline__ void wait_for_group(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "r"(threads) : "memory");
}

}  // namespace octet::kernels
