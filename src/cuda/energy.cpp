#include "src/cuda/energy.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "src/cuda/device.h"

namespace octet {
namespace {

// Of nvml.h, which toolkits may lack; a driver keeps these names and types.
using Device = struct nvmlDevice_st*;
using Init = int (*)();
using DeviceByBusId = int (*)(const char*, Device*);
using TotalEnergy = int (*)(Device, unsigned long long* millijoules);
constexpr int kSuccess = 0;

struct Counter {
  Device device = nullptr;
  TotalEnergy read = nullptr;
};

/// Stays open: the driver's library is not to be unloaded while others may use it.
Counter open_counter() {
  if (!gpu_status().usable) return {};
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  const auto init = reinterpret_cast<Init>(::dlsym(library, "nvmlInit_v2"));
  const auto find = reinterpret_cast<DeviceByBusId>(::dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto read = reinterpret_cast<TotalEnergy>(::dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
  char bus_id[32] = "";  // NVML numbers all GPUs of the machine, CUDA the visible ones
  if (!init || !find || !read || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) != cudaSuccess) return {};
  Device device = nullptr;
  if (init() != kSuccess || find(bus_id, &device) != kSuccess) return {};
  return {device, read};
}

}  // namespace

std::optional<double> gpu_joules() {
  static const Counter kCounter = open_counter();
  unsigned long long millijoules = 0;
  if (kCounter.read == nullptr || kCounter.read(kCounter.device, &millijoules) != kSuccess) return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace octet
