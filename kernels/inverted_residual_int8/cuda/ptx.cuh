// PTX instructions that inverted residuals use beside those of the mma convolution and of clusters (PTX ISA 8.x).
#pragma once

#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

/// sum = start + a (16 x 32 uint8 codes) * b (32 x 8 weights), modulo 2^32. Where sums start is four registers,
/// although both rows start the same: out of two the compiler would copy four before every product.
__device__ __forceinline__ void multiply_from(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                              const int4& start) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start.x), "r"(start.y), "r"(start.z),
        "r"(start.w));
}

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
