// SPDX-License-Identifier: Apache-2.0
// --device: which engines and GPUs the commands may use.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "src/base/text.h"
#include "tools/octet/commands.h"

namespace octet::cli {
namespace {

constexpr std::string_view kGpu = "cuda:";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// Returns the number of GPUs that the NVIDIA driver shows, whatever CUDA_VISIBLE_DEVICES says; 0 without a driver.
long gpus_of_driver() {
  std::error_code none;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", none);
  return none ? 0 : std::distance(begin(gpus), end(gpus));
}

}  // namespace

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
