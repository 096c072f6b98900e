// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/device.h"

#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "kernels/conv/conv2d.h"
#include "src/cuda/check.h"

namespace octet {
namespace {

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

/// Returns an attribute of a GPU, or 0 where the driver does not tell it.
int attribute(cudaDeviceAttr which, int gpu) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, gpu) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

/// Finds out what gpu_status() returns.
GpuStatus ask(int gpu) {
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
  status.visible = count;
  if (gpu >= count) {
    status.reason = fmt::format("there is no GPU {}: {}", gpu,
                                count == 1 ? std::string("the only one is number 0")
                                           : fmt::format("there are {}, numbers 0 to {}", count, count - 1));
    return status;
  }
  cudaDeviceProp properties{};
  if (const cudaError_t asked = cudaGetDeviceProperties(&properties, gpu); asked != cudaSuccess) {
    cudaGetLastError();
    status.reason = cudaGetErrorString(asked);
    return status;
  }
  status.name = properties.name;
  status.capability = 10 * properties.major + properties.minor;
  status.multiprocessors = properties.multiProcessorCount;
  status.memory_bytes = properties.totalGlobalMem;
  status.clock_khz = attribute(cudaDevAttrClockRate, gpu);
  status.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate, gpu);
  status.memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, gpu);
  status.integrated = properties.integrated != 0;
  status.usable = status.capability >= kOldestCapability;
  if (!status.usable) {
    status.reason =
        fmt::format("{} has compute capability {}.{}, octet's kernels need {}.{} (Ampere) or newer", status.name,
                    properties.major, properties.minor, kOldestCapability / 10, kOldestCapability % 10);
  }
#if OCTET_CUDA_CHECK
  status.usable = false;
  status.reason =
      "this build's device code was compiled only to be checked (OCTET_CUDA_CHECK), not to be fast: run "
      "tools/setup.sh --cuda";
#endif
  return status;
}

/// Functions of the driver's library. Programs are not linked with it, so that octet also starts where there is none.
/// They are found by dlsym, since CUDA's runtime may begin to use the current GPU when it is asked for them.
class Driver {
 public:
  decltype(&cuDeviceGet) device_get = find<decltype(&cuDeviceGet)>("cuDeviceGet");
  decltype(&cuDevicePrimaryCtxRetain) retain_primary =
      find<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(&cuCtxGetDevice) current_device = find<decltype(&cuCtxGetDevice)>("cuCtxGetDevice");
  decltype(&cuCtxPushCurrent) push = find<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent_v2");
  decltype(&cuCtxPopCurrent) pop = find<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent_v2");

 private:
  template <typename FunctionKind>
  static FunctionKind find(const char* name) {
    static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto function = library ? reinterpret_cast<FunctionKind>(::dlsym(library, name)) : nullptr;
    if (function == nullptr) throw promise_error(std::string("the NVIDIA driver has no ") + name);
    return function;
  }
};

const Driver& driver() {
  static const Driver kDriver;
  return kDriver;
}

void check_driver(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS)
    throw promise_error(fmt::format("{}: the NVIDIA driver answers error {}", what, static_cast<int>(status)));
}

/// Returns the context of a GPU in which CUDA's runtime, and so LibTorch, works. It is kept until the process ends.
CUcontext primary_context(int gpu) {
  static std::mutex mutex;
  static std::map<int, CUcontext> known;
  const std::scoped_lock lock(mutex);
  CUcontext& context = known[gpu];
  if (context == nullptr) {
    CUdevice device = 0;
    check_driver(driver().device_get(&device, gpu), "choosing a GPU");
    check_driver(driver().retain_primary(&context, device), "beginning to use a GPU");
  }
  return context;
}

}  // namespace

int current_gpu() {
  int gpu = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  CUdevice of_context = 0;  // a current context takes precedence over what the runtime was told last
  return driver().current_device(&of_context) == CUDA_SUCCESS ? of_context : gpu;
}

const GpuStatus& gpu_status(int gpu) {
  static std::mutex mutex;
  static std::map<int, GpuStatus> known;
  if (gpu == kCurrentGpu) gpu = current_gpu();
  const std::scoped_lock lock(mutex);
  const auto found = known.find(gpu);
  return found != known.end() ? found->second : known.emplace(gpu, ask(gpu)).first->second;
}

GpuGuard::GpuGuard(int gpu) {
  if (gpu == kCurrentGpu) gpu = current_gpu();
  if (const GpuStatus& status = gpu_status(gpu); !status.usable) throw promise_error(status.reason);
  check_driver(driver().push(primary_context(gpu)), "choosing a GPU");
}

GpuGuard::~GpuGuard() {
  CUcontext popped = nullptr;
  driver().pop(&popped);
}

kernels::CudaGpu this_gpu() {
  const GpuStatus& status = gpu_status();
  const bool as_compiled = status.capability < 90 || kernels::cuda_code_overlaps();
  return {as_compiled ? status.capability : kOldestCapability, status.multiprocessors};
}

bool gpu_finishes_its_work() { return cudaDeviceSynchronize() == cudaSuccess; }

ProfiledRange::ProfiledRange() { cudaProfilerStart(); }
ProfiledRange::~ProfiledRange() { cudaProfilerStop(); }

namespace {

// Declarations of nvml.h, which toolkits may lack; drivers keep these names and types.
using Device = struct nvmlDevice_st*;
using Init = int (*)();
using DeviceByBusId = int (*)(const char*, Device*);
using TotalEnergy = int (*)(Device, unsigned long long* millijoules);
constexpr int kSuccess = 0;

/// A GPU's energy counter.
struct Counter {
  Device device = nullptr;
  TotalEnergy read = nullptr;
};

/// Opens the counter of a GPU; `read` is null if there is none. The library stays loaded, since others may use it.
Counter open_counter(int gpu) {
  if (!gpu_status(gpu).usable) return {};
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  const auto init = reinterpret_cast<Init>(::dlsym(library, "nvmlInit_v2"));
  const auto find = reinterpret_cast<DeviceByBusId>(::dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto read = reinterpret_cast<TotalEnergy>(::dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
  char bus_id[32] = "";  // NVML numbers all GPUs of the machine, CUDA the visible ones
  if (!init || !find || !read || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, gpu) != cudaSuccess) return {};
  Device device = nullptr;
  if (init() != kSuccess || find(bus_id, &device) != kSuccess) return {};
  return {device, read};
}

}  // namespace

std::optional<double> gpu_joules() {
  static std::mutex mutex;
  static std::map<int, Counter> counters;  // by number of GPU
  const int gpu = current_gpu();
  const std::scoped_lock lock(mutex);
  if (!counters.contains(gpu)) counters.emplace(gpu, open_counter(gpu));
  const Counter& counter = counters.at(gpu);
  unsigned long long millijoules = 0;
  if (counter.read == nullptr || counter.read(counter.device, &millijoules) != kSuccess) return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace octet
