// What every .cu file checks after a launch. Include it in .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "kernels/launch_refused.h"
#include "src/common/error.h"

namespace octet::kernels {

/// `status` of launching a kernel or of preparing that. Throws Error(promise) naming the kernel when it is no success;
/// LaunchRefused when other kernels may still be launched. An error while a kernel runs shows up later, in check_cuda()
/// of src/cuda/check.h.
inline void check_launch(const char* kernel, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // told here: the next launch must not be blamed for it
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

inline void check_launch(const char* kernel) { check_launch(kernel, cudaGetLastError()); }

/// Blocks of `size` that cover `count`.
inline unsigned blocks_for(long count, int size) { return static_cast<unsigned>((count + size - 1) / size); }

inline unsigned multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(count);
}

/// Blocks of `threads` threads that the GPU runs at once, for kernels whose blocks loop over the work.
template <typename Kernel>
unsigned resident_blocks(Kernel kernel, int threads, size_t shared_bytes) {
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
  return multiprocessors() * static_cast<unsigned>(blocks);  // 0 when any of it failed: the launch reports why
}

}  // namespace octet::kernels
