// PTX instructions that inverted residuals use beside those of the mma convolution (PTX ISA 8.x; clusters since sm_90).
#pragma once

#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

/// sum = start + a (16 x 32 uint8 codes) * b (32 x 8 weights), modulo 2^32; rows start as (first, second) in each
/// thread.
__device__ __forceinline__ void multiply_from(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                              int32_t first, int32_t second) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %10, "
      "%11};"
      : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(first), "r"(second));
}

/// All threads of the cluster's blocks have come here, and see what each wrote before.
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

/// 16 bytes at `shared`, an address in this block, as block `rank` of the cluster has them.
__device__ __forceinline__ int4 load_from_block(uint32_t shared, int rank) {
  int4 v{};
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(shared), "r"(rank)
      : "memory");
#endif
  return v;
}

}  // namespace octet::kernels
