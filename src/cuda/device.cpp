#include "src/cuda/device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace octet {
namespace {

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

GpuStatus ask() {
  GpuStatus status;
  cudaDriverGetVersion(&status.driver);
  cudaRuntimeGetVersion(&status.runtime);
  if (status.driver == 0) {
    status.reason = "no NVIDIA driver";
    return status;
  }
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) {
    status.reason = fmt::format("the NVIDIA driver is for CUDA {}, this build needs {}: update the driver",
                                version(status.driver), version(status.runtime));
    return status;
  }
  if (found != cudaSuccess || count == 0) {
    status.reason = found == cudaSuccess ? "no GPU" : cudaGetErrorString(found);
    cudaGetLastError();  // clears it: a missing GPU is an answer, not a failure
    return status;
  }
  cudaDeviceProp properties{};
  if (const cudaError_t asked = cudaGetDeviceProperties(&properties, 0); asked != cudaSuccess) {
    status.reason = cudaGetErrorString(asked);
    return status;
  }
  status.visible = count;
  status.name = properties.name;
  status.capability = 10 * properties.major + properties.minor;
  status.multiprocessors = properties.multiProcessorCount;
  status.memory_bytes = properties.totalGlobalMem;
  status.usable = status.capability >= kOldestCapability;
  if (!status.usable) {
    status.reason =
        fmt::format("{} has compute capability {}.{}, octet's kernels need {}.{} (Ampere) or newer", status.name,
                    properties.major, properties.minor, kOldestCapability / 10, kOldestCapability % 10);
  }
  return status;
}

}  // namespace

const GpuStatus& gpu_status() {
  static const GpuStatus kStatus = ask();
  return kStatus;
}

bool gpu_finishes_its_work() { return cudaDeviceSynchronize() == cudaSuccess; }

}  // namespace octet
