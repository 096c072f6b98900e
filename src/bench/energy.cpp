// SPDX-License-Identifier: Apache-2.0
#include "src/bench/network.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#if OCTET_CUDA
#include "src/cuda/device.h"
#endif

namespace octet {
namespace {

std::optional<double> joules_in(const std::string& file) {
  double microjoules = 0;
  if (!(std::ifstream(file) >> microjoules)) return std::nullopt;
  return 1e-6 * microjoules;
}

std::optional<double> of_gpu() {
#if OCTET_CUDA
  return gpu_joules();
#else
  return std::nullopt;
#endif
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& powercap) {
  for (int package = 0;; ++package) {  // "intel-rapl:0", also on AMD; "intel-rapl:0:1" would be a part of a package
    const std::string folder = fmt::format("{}/intel-rapl:{}", powercap, package);
    std::error_code missing;
    if (!std::filesystem::exists(folder, missing)) break;
    std::string name;  // "package-0"; "psys" is the complete machine, including packages
    std::getline(std::ifstream(folder + "/name") >> std::ws, name);
    if (!name.starts_with("package")) continue;
    const std::string counter = folder + "/energy_uj";
    const auto begun = joules_in(counter), range = joules_in(folder + "/max_energy_range_uj");
    if (begun && range) packages_.push_back({counter, *begun, *range});
  }
  gpu_begun_ = of_gpu();
  start_ = std::chrono::steady_clock::now();
}

Energy EnergyMeter::drawn() const {
  Energy energy{.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()};
  if (const auto now = of_gpu(); now && gpu_begun_) energy.gpu_joules = *now - *gpu_begun_;
  for (const Package& package : packages_) {
    const auto now = joules_in(package.counter);
    if (!now) continue;
    const double drawn = *now - package.begun;
    energy.cpu_joules = energy.cpu_joules.value_or(0) + (drawn < 0 ? drawn + package.range : drawn);
  }
  return energy;
}

}  // namespace octet
