// SPDX-License-Identifier: Apache-2.0
// The energy of a measurement, by the counters of the GPU (NVML) and of the processors' packages (RAPL).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace octet {

/// The energy used in some time, by everything that ran and while idle. It is empty where no counter can be read.
struct Energy {
  double seconds = 0;
  std::optional<double> gpu_joules, cpu_joules;
};

/// Measures the energy since it was made.
class EnergyMeter {
 public:
  static constexpr const char* kPowercap = "/sys/class/powercap";  ///< Linux's RAPL counters, which only root may read

  /// Starts a measurement.
  explicit EnergyMeter(const std::string& powercap = kPowercap);
  /// Returns the energy since the start. A processor's counter may have wrapped once, as it does after minutes at full
  /// power.
  Energy drawn() const;

 private:
  struct Package {
    std::string counter;          ///< a file, in microjoules
    double begun = 0, range = 0;  ///< joules at the start, and where the counter wraps
  };
  std::vector<Package> packages_;
  std::optional<double> gpu_begun_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace octet
