#include "tools/octet/machine.h"

#include <fmt/format.h>

#include "tools/octet/commands.h"

#if OCTET_CUDA
#include "src/cuda/device.h"
#else
#include <dlfcn.h>
#endif

namespace octet::cli {

#if OCTET_CUDA

Support cuda_gpu() {
  const GpuStatus& gpu = gpu_status();
  if (!gpu.usable) return {false, gpu.reason};
  return {true, fmt::format("{}, compute capability {}.{}, {:.0f} GB, driver for CUDA {}.{}", gpu.name,
                            gpu.capability / 10, gpu.capability % 10, static_cast<double>(gpu.memory_bytes) / 1e9,
                            gpu.driver / 1000, gpu.driver % 1000 / 10)};
}

#else

Support cuda_gpu() {
  // The driver's own library tells, so that no CUDA toolkit is needed to ask.
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {false, "no NVIDIA driver (libcuda.so.1 not found)"};
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr) return {false, "libcuda.so.1 lacks cuInit or cuDeviceGetCount"};
  if (const int status = init(0); status != 0)
    return {false, fmt::format("the NVIDIA driver answers error {} to cuInit", status)};
  if (count(&devices) != 0 || devices == 0) return {false, "the NVIDIA driver finds no GPU"};
  return {true, fmt::format("{} GPU{}", devices, devices == 1 ? "" : "s")};
}

#endif

EngineDevices devices(const Common& common) { return common.device == "cpu" ? EngineDevices::cpu : EngineDevices::any; }

void check_device(const Common& common) {
  if (common.device != "cuda") return;
  const Support cuda = find_engine("cuda").available();
  if (!cuda.ok) throw usage_error(fmt::format("--device cuda: {}; use --device cpu", cuda.reason));
}

}  // namespace octet::cli
