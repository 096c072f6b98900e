// SPDX-License-Identifier: Apache-2.0
// What host code has to know of the CUDA kernels. No CUDA headers: every layer may include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/error.h"

struct CUstream_st;

namespace octet {

/// The stream that a kernel is launched on: the same type as cudaStream_t.
using CudaStream = CUstream_st*;

}  // namespace octet

namespace octet::kernels {

/// The types of real values that kernels read and write.
enum class ValueType { float32, float16, bfloat16 };

/// Thrown when a launch asks for more shared memory, registers, threads or clustered blocks than this GPU has. Nothing
/// ran and the GPU still works, so the caller may try another kernel.
class LaunchRefused : public Error {
 public:
  explicit LaunchRefused(const std::string& message) : Error(ExitCode::promise, message) {}
};

/// Returns the bytes of shared memory that a thread block may ask for on a GPU of this compute capability (90 for 9.0):
/// 227 KiB on Hopper and data-center Blackwell; elsewhere 99 KiB, the smallest limit of all GPUs from 8.0 on.
constexpr int cuda_shared_limit(int capability) { return (capability >= 90 && capability < 120 ? 227 : 99) * 1024; }

/// Returns whether the kernels that run on the current GPU were compiled for compute capability 9.0 or newer, so that
/// they wait for the kernel before them and talk to the other blocks of their cluster (launch.cuh). Older GPUs run none
/// that do, nor does a newer one for which the driver compiles the PTX of 8.0. False if there is no usable GPU.
bool cuda_code_overlaps();

/// Bytes at the start of a workspace (device memory that kernels of one stream share for partial sums) that hold
/// counters. They are set to 0 when the workspace is allocated, and every kernel leaves them at 0.
inline constexpr size_t kCudaWorkspaceZeros = 4096;

/// Sums up the time between two points of a stream, on the GPU: this also works in a CUDA graph, which is recorded once
/// and replayed. It lies in device memory and starts zeroed.
struct StreamClock {
  int64_t began = 0, nanoseconds = 0;
};

/// Enqueues a reading of the GPU's timer into `clock->began`.
void cuda_clock_start(StreamClock* clock, CudaStream stream);

/// Enqueues an addition of the time since cuda_clock_start() to `clock->nanoseconds`.
void cuda_clock_stop(StreamClock* clock, CudaStream stream);

}  // namespace octet::kernels
