#include "src/cuda/energy.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <map>
#include <mutex>

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
  static std::map<int, Counter> counters;  // by GPU
  const int gpu = current_gpu();
  const std::scoped_lock lock(mutex);
  if (!counters.contains(gpu)) counters.emplace(gpu, open_counter(gpu));
  const Counter& counter = counters.at(gpu);
  unsigned long long millijoules = 0;
  if (counter.read == nullptr || counter.read(counter.device, &millijoules) != kSuccess) return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace octet
