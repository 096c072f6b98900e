// SPDX-License-Identifier: Apache-2.0
// How kernels are launched, how they overlap with the kernel before them, and how the blocks of a cluster talk to each
// other. Include it in .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/core/cuda.h"
#include "src/base/error.h"

namespace octet::kernels {

/// Throws when `status`, of a launch or of its preparation, is an error: LaunchRefused when other kernels can still be
/// launched, else Error(promise); both name the kernel. Errors while a kernel runs show up later, in check_cuda() of
/// src/cuda/device.h.
inline void check_launch(const char* kernel, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next launch would report otherwise
  const std::string message =
      std::string("CUDA kernel ") + kernel + " could not be launched: " + cudaGetErrorString(status);
  switch (status) {
    case cudaErrorInvalidClusterSize:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidValue:
    case cudaErrorLaunchOutOfResources:
      throw LaunchRefused(message);
    default:
      throw promise_error(message);
  }
}

/// Checks the launch that came just before.
inline void check_launch(const char* kernel) { check_launch(kernel, cudaGetLastError()); }

/// Returns how many blocks of `size` cover `count`.
inline unsigned blocks_for(long count, int size) { return static_cast<unsigned>((count + size - 1) / size); }

/// Returns the number of multiprocessors of the current GPU.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(count);
}

/// Returns how many blocks of `threads` threads the GPU runs at a time, for kernels whose blocks loop over the work.
template <typename Kernel>
unsigned resident_blocks(Kernel kernel, int threads, size_t shared_bytes) {
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
  return multiprocessors() * static_cast<unsigned>(blocks);  // 0 when any of it failed: the launch reports why
}

/// Launches a kernel whose blocks form clusters of `cluster` (more than one block needs compute capability 9.0, and
/// code for it). Where cuda_code_overlaps(), it begins while the previous kernel in the stream still runs (programmatic
/// dependent launch). Each of its threads calls wait_for_previous_kernel() before it touches what other kernels read or
/// write, or returns at once. By then all earlier kernels have ended, because the previous one waited for them.
///
/// A kernel that neither reads nor writes what the previous one writes or reads may run concurrently with it. It lets
/// the next kernel begin when it begins itself, and waits only at its end. It begins after all blocks of the previous
/// kernel have waited, so everything before both has ended, and a kernel that waits for it has waited for both. Of two
/// successive kernels only one can do this.
template <typename... Parameters, typename... Args>
void launch_overlapped_clusters(void (*kernel)(Parameters...), dim3 blocks, dim3 cluster, dim3 threads,
                                size_t shared_bytes, CudaStream stream, const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster.x, cluster.y, cluster.z};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = !cuda_code_overlaps() ? 0 : cluster.x * cluster.y * cluster.z > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, args...);
}

/// Launches a kernel as launch_overlapped_clusters() does, without clusters.
template <typename... Parameters, typename... Args>
void launch_overlapped(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes, CudaStream stream,
                       const Args&... args) {
  launch_overlapped_clusters(kernel, blocks, dim3(1), threads, shared_bytes, stream, args...);
}

/// Allows the next kernel in the stream to begin; it begins when all blocks of this one have called this or ended. Only
/// kernels that are launched with <<<>>>, such as the first of a network, may call it without having waited.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until all earlier kernels in the stream have ended and their writes are visible, then allows the next kernel
/// to begin. It does not allow that before the wait: a queue of waiting kernels would take the room of the working one,
/// at the cost that tools/lab/notebooks/kernels.md has. The compiler may move __ldg, but no other load, before the
/// wait.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  let_next_kernel_begin();
}

/// Waits likewise and returns `written`, through which __ldg may read what earlier kernels wrote.
__device__ __forceinline__ const uint8_t* wait_for_previous_kernel(const uint8_t* written) {
  wait_for_previous_kernel();
  asm volatile("" : "+l"(written));  // the compiler knows the pointer only after the wait, so it cannot load earlier
  return written;
}

// Clusters (PTX ISA 8.x). Before compute capability 9.0 these functions do nothing. Addresses are shared_address()'s.

/// Announces that this thread has arrived; wait_for_cluster() waits until all threads of all blocks have. A thread
/// calls one of the two arrive functions once before each wait. After this one, earlier writes need not be visible to
/// others.
__device__ __forceinline__ void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

/// Announces likewise; after the wait, other threads see what this thread wrote before.
__device__ __forceinline__ void arrive_at_cluster_with_writes() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

/// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// Returns the address in block `rank` of the cluster that corresponds to `shared` in this block.
__device__ __forceinline__ uint32_t address_in_block(uint32_t shared, int rank) {
  uint32_t address = shared;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
#endif
  return address;
}

/// Store 16 and 4 bytes at an address_in_block().
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
