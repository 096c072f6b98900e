// SPDX-License-Identifier: Apache-2.0
// The kernels behind StreamClock, and what kernels were compiled for.
#include <array>
#include <atomic>

#include "kernels/core/cuda.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

__device__ int64_t nanoseconds_now() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void start_kernel(StreamClock* clock) { clock->began = nanoseconds_now(); }

__global__ void stop_kernel(StreamClock* clock) { clock->nanoseconds += nanoseconds_now() - clock->began; }

}  // namespace

bool cuda_code_overlaps() {
  static std::array<std::atomic<int>, 64> versions;  // of PTX, for each GPU; 0: not asked yet
  int device = 0;
  cudaGetDevice(&device);
  std::atomic<int>& version = versions[static_cast<size_t>(device) % versions.size()];
  if (version == 0) {
    cudaFuncAttributes kernel{};
    if (cudaFuncGetAttributes(&kernel, start_kernel) == cudaSuccess) version = kernel.ptxVersion;
    cudaGetLastError();  // clears it: without a GPU nothing is launched
  }
  return version >= 90;
}

void cuda_clock_start(StreamClock* clock, CudaStream stream) {
  start_kernel<<<1, 1, 0, stream>>>(clock);
  check_launch("clock");
}

void cuda_clock_stop(StreamClock* clock, CudaStream stream) {
  stop_kernel<<<1, 1, 0, stream>>>(clock);
  check_launch("clock");
}

}  // namespace octet::kernels
