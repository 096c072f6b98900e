// Thread blocks of one cluster: how they wait for one another and reach each other's shared memory (PTX ISA 8.x;
// compute capability 9.0 and newer, elsewhere nothing is done). Addresses are those of shared_address(). Include it in
// .cu files only.
#pragma once

#include <cstdint>

namespace octet::kernels {

/// A thread has come here: wait_for_cluster() waits for all threads of all blocks. Once before each of those; nothing
/// is promised about what threads wrote.
__device__ __forceinline__ void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

/// The same, and who waits sees what this thread wrote before.
__device__ __forceinline__ void arrive_at_cluster_with_writes() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// Where block `rank` of the cluster has what lies at `shared` in this one.
__device__ __forceinline__ uint32_t address_in_block(uint32_t shared, int rank) {
  uint32_t address = shared;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
#endif
  return address;
}

/// 16 bytes, and a word, at an address_in_block().
__device__ __forceinline__ int4 load_from_cluster(uint32_t address) {
  int4 v{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
#endif
  return v;
}
__device__ __forceinline__ void store_to_cluster(uint32_t address, int4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
#endif
}
__device__ __forceinline__ void store_to_cluster(uint32_t address, uint32_t word) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
#endif
}

}  // namespace octet::kernels
