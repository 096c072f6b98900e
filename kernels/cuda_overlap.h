// Kernels that begin while the one before them in their stream still runs (programmatic dependent launch). Include it
// in .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// Launches a kernel that begins while the one before it in the stream still runs, on GPUs that can (compute capability
/// 9.0 and newer). All its threads that do not return at once call wait_for_previous_kernel() before they touch what
/// other kernels write or read: also those before the one before it are done then, for that one waited for them.
///
/// A kernel that has nothing to do with the one before it may run beside it: it begins when all blocks of that one have
/// waited, so that what stands before both is done, and waits only at its end, so that who waits for it has waited for
/// both. Of two kernels in a row only one can do that. It lets the next kernel begin when it begins itself.
///
/// Blocks form clusters of `cluster`; more than one needs compute capability 9.0.
template <typename... Parameters, typename... Args>
void launch_overlapped_clusters(void (*kernel)(Parameters...), dim3 blocks, dim3 cluster, dim3 threads,
                                size_t shared_bytes, CudaStream stream, const Args&... args) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
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
  config.numAttrs = major < 9 ? 0 : cluster.x * cluster.y * cluster.z > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, args...);
}

/// The same without clusters.
template <typename... Parameters, typename... Args>
void launch_overlapped(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes, CudaStream stream,
                       const Args&... args) {
  launch_overlapped_clusters(kernel, blocks, dim3(1), threads, shared_bytes, stream, args...);
}

/// The next kernel in the stream may begin, as soon as all blocks of this one have said so or ended. Without a wait
/// only in kernels that are launched plainly, as the first of a network: who waits for one must find all before it
/// done.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until all kernels before this one in the stream are done and what they wrote is there. The compiler may move
/// __ldg, but no other load, before it. Then the next kernel may begin, no sooner: a queue of kernels that wait takes
/// the room of the one at work (NOTES.md has what that costs).
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  let_next_kernel_begin();
}

/// The same, and a pointer by which __ldg reads what kernels before this one wrote.
__device__ __forceinline__ const uint8_t* wait_for_previous_kernel(const uint8_t* written) {
  wait_for_previous_kernel();
  asm volatile("" : "+l"(written));  // behind the wait, and nothing is known of where it points before
  return written;
}

}  // namespace octet::kernels
