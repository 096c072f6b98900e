#include "src/engine/machine.h"

#include <fmt/format.h>

#include <fstream>

#include "src/common/cores.h"

#if OCTET_CUDA
#include "src/cuda/device.h"
#endif

namespace octet {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return fmt::format("{}, {}", model, described_cores());
}

std::string machine_model() {
#if OCTET_CUDA
  if (gpu_status().usable) return cpu_model() + "; " + gpu_status().name;
#endif
  return cpu_model();
}

}  // namespace octet
