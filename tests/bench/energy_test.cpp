// SPDX-License-Identifier: Apache-2.0
#include "src/bench/bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace octet {
namespace {

/// A folder as Linux shows RAPL in.
class Powercap {
 public:
  Powercap() : path_((std::filesystem::temp_directory_path() / ("octet_rapl_" + std::to_string(getpid()))).string()) {
    std::filesystem::create_directories(path_);
  }
  ~Powercap() { std::filesystem::remove_all(path_); }
  Powercap(const Powercap&) = delete;
  Powercap& operator=(const Powercap&) = delete;
  const std::string& path() const { return path_; }
  void set(const std::string& domain, long microjoules, const std::string& name = "package-0") const {
    std::filesystem::create_directories(path_ + "/" + domain);
    std::ofstream(path_ + "/" + domain + "/name") << name << "\n";
    std::ofstream(path_ + "/" + domain + "/energy_uj") << microjoules << "\n";
    std::ofstream(path_ + "/" + domain + "/max_energy_range_uj") << 262'143'328'850 << "\n";
  }

 private:
  std::string path_;
};

TEST(EnergyMeter, AddsPackagesAndNeitherTheirPartsNorTheMachine) {
  const Powercap powercap;
  powercap.set("intel-rapl:0", 5'000'000);
  powercap.set("intel-rapl:0:0", 1'000'000, "core");
  powercap.set("intel-rapl:1", 7'000'000, "psys");  // laptops: the packages and all else
  powercap.set("intel-rapl:2", 2'500'000, "package-1");
  const EnergyMeter meter(powercap.path());
  powercap.set("intel-rapl:0", 8'250'000);
  powercap.set("intel-rapl:0:0", 3'000'000, "core");
  powercap.set("intel-rapl:1", 17'000'000, "psys");
  powercap.set("intel-rapl:2", 2'600'000, "package-1");
  const Energy energy = meter.drawn();
  ASSERT_TRUE(energy.cpu_joules);
  EXPECT_NEAR(*energy.cpu_joules, 3.25 + 0.1, 1e-9);
  EXPECT_GE(energy.seconds, 0);
}

TEST(EnergyMeter, ACounterThatBeganAnewGoesOn) {
  const Powercap powercap;
  powercap.set("intel-rapl:0", 262'143'000'000);
  const EnergyMeter meter(powercap.path());
  powercap.set("intel-rapl:0", 1'000'000);
  EXPECT_NEAR(*meter.drawn().cpu_joules, 262'143.32885 - 262'143.0 + 1, 1e-6);
}

TEST(EnergyMeter, SaysNothingWhereNothingCanBeRead) {
  EXPECT_FALSE(EnergyMeter("/nowhere").drawn().cpu_joules);
  const Powercap powercap;
  std::filesystem::create_directories(powercap.path() + "/intel-rapl:0");  // not root's: no counter is readable
  EXPECT_FALSE(EnergyMeter(powercap.path()).drawn().cpu_joules);
}

}  // namespace
}  // namespace octet
