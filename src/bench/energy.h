// Joules of a measurement: the GPU's own counter, and that of the processors' packages (RAPL).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace octet {

/// What was drawn in a while, by everything that ran and by what was idle. Nothing where no counter can be read.
struct Energy {
  double seconds = 0;
  std::optional<double> gpu_joules, cpu_joules;
};

class EnergyMeter {
 public:
  static constexpr const char* kPowercap = "/sys/class/powercap";  ///< where Linux shows RAPL; its counters are root's

  explicit EnergyMeter(const std::string& powercap = kPowercap);  ///< begins to count
  /// Since it began. A processor's counter may have begun anew once: after minutes at full power.
  Energy drawn() const;

 private:
  struct Package {
    std::string counter;          ///< a file: microjoules
    double begun = 0, range = 0;  ///< joules; the counter begins anew after `range`
  };
  std::vector<Package> packages_;
  std::optional<double> gpu_begun_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace octet
