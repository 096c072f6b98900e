// SPDX-License-Identifier: Apache-2.0
#include "src/base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace octet {
namespace {

namespace fs = std::filesystem;

/// A tree of files as /proc and /sys show them.
class Cgroups : public testing::Test {
 protected:
  Cgroups() : root_(fs::temp_directory_path() / ("octet_cgroups_" + std::to_string(::getpid()))) {}
  ~Cgroups() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(root_.string() + file).parent_path());
    std::ofstream(root_.string() + file) << text;
  }
  void is_in(const std::string& groups) const { write("/proc/self/cgroup", groups); }
  int cores() const { return quota_cores(root_.string()); }

  const fs::path root_;
};

TEST_F(Cgroups, NoneIsNoQuota) {
  EXPECT_EQ(cores(), 0);
  is_in("0::/\n");
  EXPECT_EQ(cores(), 0);
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), 0);
}

TEST_F(Cgroups, OfAContainerIsRoundedUp) {
  is_in("0::/\n");
  for (const auto& [text, expected] : {std::pair{"200000 100000\n", 2},
                                       {"150000 100000\n", 2},
                                       {"50000 100000\n", 1},
                                       {"1000 100000\n", 1},
                                       {"350000 50000\n", 7},
                                       {"0 100000\n", 0},
                                       {"200000\n", 0},
                                       {"200000 0\n", 0},
                                       {"what\n", 0},
                                       {"99999999999999 1000\n", 1000000}}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cores(), expected) << text;
  }
}

TEST_F(Cgroups, TheLeastOfAPathIsMeant) {
  is_in("0::/system.slice/train.service\n");
  write("/sys/fs/cgroup/system.slice/train.service/cpu.max", "800000 100000\n");
  EXPECT_EQ(cores(), 8);
  write("/sys/fs/cgroup/system.slice/cpu.max", "300000 100000\n");
  EXPECT_EQ(cores(), 3);
  write("/sys/fs/cgroup/system.slice/train.service/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2);
  write("/sys/fs/cgroup/system.slice/other.service/cpu.max", "100000 100000\n");  // not around this process
  EXPECT_EQ(cores(), 2);
}

TEST_F(Cgroups, OfVersion1) {
  is_in("12:pids:/docker/5a17\n4:cpu,cpuacct:/docker/5a17\n1:name=systemd:/docker/5a17\n0::/system.slice\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/5a17/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/5a17/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(cores(), 5);
  write("/sys/fs/cgroup/unified/system.slice/cpu.max", "300000 100000\n");  // a mixed system
  EXPECT_EQ(cores(), 3);
  write("/sys/fs/cgroup/cpuset/docker/5a17/cpu.cfs_quota_us", "100000\n");  // no hierarchy of `cpu`
  write("/sys/fs/cgroup/cpuset/docker/5a17/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 3);
}

TEST_F(Cgroups, TheHostsPathInAContainer) {  // docker without a namespace of cgroups: its group is what is mounted
  is_in("3:cpu,cpuacct:/docker/5a17\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 2);
  is_in("0::/../other\n");
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(Cgroups, BusySecondsAreOfTheNamedCores) {
  write("/proc/stat",
        "cpu  9999 9999 9999 9999 9999 9999 9999 0 0 0\ncpu0 100 20 3 70000 5000 4 50 9 0 0\n"
        "cpu1 1000 0 0 1 1 0 0 0 0 0\ncpu12 10000 0 0 1 1 0 0 0 0 0\nintr 5 6\ncpu_x 7\n");
  const double second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(busy_seconds({0}, root_.string()) * second, 177);
  EXPECT_DOUBLE_EQ(busy_seconds({0, 12}, root_.string()) * second, 10177);
  EXPECT_EQ(busy_seconds({3}, root_.string()), 0);
  EXPECT_EQ(busy_seconds({0}, "/none"), 0);
}

TEST(UsableCores, FollowTheAffinity) {
  const int before = usable_cores();
  ASSERT_GE(before, 1);
  int on_one_core = 0;
  std::thread([&] {  // affinity is a thread's
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(::sched_getcpu(), &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
    on_one_core = usable_cores();
  })
      .join();
  EXPECT_EQ(on_one_core, 1);
  EXPECT_EQ(usable_cores(), before);
}

TEST(UsableCores, AreDescribedBesideThoseOfTheMachine) {
  const int online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const std::string all = std::to_string(online) + (online == 1 ? " core" : " cores");
  const std::string usable = std::to_string(usable_cores());
  EXPECT_EQ(described_cores(), usable_cores() < online ? all + ", of which octet may use " + usable : all);
}

}  // namespace
}  // namespace octet
