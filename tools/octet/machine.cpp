#include "tools/octet/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "src/common/split.h"
#include "src/common/text_table.h"
#include "tools/octet/commands.h"

#if OCTET_CUDA
#include "src/cuda/device.h"
#else
#include <dlfcn.h>
#endif

namespace octet::cli {
namespace {

constexpr std::string_view kGpu = "cuda:";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// GPUs that the NVIDIA driver shows here, whatever CUDA_VISIBLE_DEVICES says; 0 where there is no driver.
long gpus_of_driver() {
  std::error_code none;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", none);
  return none ? 0 : std::distance(begin(gpus), end(gpus));
}

}  // namespace

#if OCTET_CUDA

std::vector<Support> cuda_gpus() {
  std::vector<Support> gpus;
  for (int number = 0; number < std::max(1, gpu_status(0).visible); ++number) {
    const GpuStatus& gpu = gpu_status(number);
    gpus.push_back({gpu.usable, gpu.reason});
    if (gpu.usable)
      gpus.back().reason = fmt::format(
          "{}, compute capability {}.{}, {:.0f} GB, driver for CUDA {}.{}", gpu.name, gpu.capability / 10,
          gpu.capability % 10, static_cast<double>(gpu.memory_bytes) / 1e9, gpu.driver / 1000, gpu.driver % 1000 / 10);
  }
  return gpus;
}

#else

std::vector<Support> cuda_gpus() {
  // The driver's own library tells, so that no CUDA toolkit is needed to ask.
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {{false, "no NVIDIA driver (libcuda.so.1 not found)"}};
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr) return {{false, "libcuda.so.1 lacks cuInit or cuDeviceGetCount"}};
  if (const int status = init(0); status != 0)
    return {{false, fmt::format("the NVIDIA driver answers error {} to cuInit", status)}};
  if (count(&devices) != 0 || devices == 0) return {{false, "the NVIDIA driver finds no GPU"}};
  return {{true, counted(devices, "GPU")}};
}

#endif

EngineDevices devices(const Common& common) { return common.device == "cpu" ? EngineDevices::cpu : EngineDevices::any; }

std::string check_device_name(const std::string& device) {
  for (const char* name : {"auto", "cpu", "cuda"})
    if (device == name) return "";
  const bool digits = device.size() <= 9 && std::all_of(device.begin() + std::min(device.size(), kGpu.size()),
                                                        device.end(), [](unsigned char c) { return std::isdigit(c); });
  if (device.starts_with(kGpu) && device.size() > kGpu.size() && digits) return "";
  return fmt::format("'{}' is no device; takes auto, cpu, cuda, or cuda:0, cuda:1, ... for one of several GPUs",
                     device);
}

void choose_gpu(const Common& common) {
  if (!common.device.starts_with(kGpu)) return;
  std::string gpu = common.device.substr(kGpu.size());
  if (const char* visible = std::getenv(kVisible); visible != nullptr) {
    const std::vector<std::string> names = split(visible, ',');
    if (const size_t number = std::stoul(gpu); number < names.size())
      gpu = names[number];
    else
      throw usage_error(fmt::format("--device {}: {}={} leaves this process {}, from cuda:0 on", common.device,
                                    kVisible, visible, counted(static_cast<long>(names.size()), "GPU")));
  }
  ::setenv(kVisible, gpu.c_str(), 1);
}

void check_device(const Common& common) {
  if (!common.device.starts_with("cuda")) return;
  const Support cuda = find_engine("cuda").available();
  if (cuda.ok) return;
  const long here = common.device == "cuda" ? 0 : gpus_of_driver();
  throw usage_error(fmt::format(
      "--device {}: {}; {}use --device cpu", common.device, cuda.reason,
      here > 0 ? fmt::format("this machine has {}, from cuda:0 on; ", counted(here, "GPU")) : std::string()));
}

}  // namespace octet::cli
