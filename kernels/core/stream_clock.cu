// SPDX-License-Identifier: Apache-2.0
// The kernels behind StreamClock.
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

void cuda_clock_start(StreamClock* clock, CudaStream stream) {
  start_kernel<<<1, 1, 0, stream>>>(clock);
  check_launch("clock");
}

void cuda_clock_stop(StreamClock* clock, CudaStream stream) {
  stop_kernel<<<1, 1, 0, stream>>>(clock);
  check_launch("clock");
}

}  // namespace octet::kernels
