// Kernels that begin while the one before them in their stream still runs (programmatic dependent launch). Include it
// in .cu files only.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// Launches a kernel that begins while the one before it in the stream still runs, on GPUs that can (compute capability
/// 9.0 and newer). It calls wait_for_previous_kernel() before it touches what other kernels write or read.
template <typename Args>
void launch_overlapped(void (*kernel)(Args), dim3 blocks, int threads, size_t shared_bytes, CudaStream stream,
                       const Args& args) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = major >= 9 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args);
}

/// Waits until all kernels before this one in the stream are done and what they wrote is there.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next kernel in the stream may begin, as soon as all blocks of this one have said so or ended.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace octet::kernels
