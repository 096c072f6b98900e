#include "tools/octet/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "tools/octet/commands.h"

namespace octet::cli {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return fmt::format("{}, {} cores", model, std::thread::hardware_concurrency());
}

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

void check_device(const Common& common) {
  if (common.device != "cuda") return;
  const Support gpu = cuda_gpu();
  throw usage_error(gpu.ok ? "--device cuda: this build has no CUDA engine yet; use --device cpu"
                           : fmt::format("--device cuda: {}; use --device cpu (octet doctor tells more)", gpu.reason));
}

}  // namespace octet::cli
