// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/threads.h"

extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);

namespace octet {
namespace {

/// Returns the core of each thread of this process that is bound to one.
std::multiset<int> bound_threads() {
  std::multiset<int> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(std::stoi(task.path().filename()), sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1)
      continue;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.insert(core);
  }
  return cores;
}

class OwnCoresTest : public testing::Test {
 protected:
  OwnCoresTest() : all_(affinity()), before_(at::get_num_threads()) {
    at::set_num_threads(static_cast<int>(all_.size()));
  }
  ~OwnCoresTest() override { at::set_num_threads(before_); }
  void SetUp() override {
    if (all_.size() < 2) GTEST_SKIP() << "needs two cores";
  }

  static void work_of_libtorch() { at::ones({1 << 20}).mul_(2); }

  /// Works until all of LibTorch's threads are bound, or none is, for at most ten seconds.
  void work_until_bound(bool bound) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do work_of_libtorch();
    while (bound_threads() != (bound ? each() : std::multiset<int>()) && std::chrono::steady_clock::now() < end);
    EXPECT_EQ(bound_threads(), bound ? each() : std::multiset<int>());
  }
  std::multiset<int> each() const { return {all_.begin(), all_.end()}; }

  const std::vector<int> all_;
  const int before_;
};

constexpr double kBusy = 1, kQuiet = 0;

TEST_F(OwnCoresTest, EachThreadOfLibTorchHasOneWhileOthersAreBusy) {
  std::atomic<double> load = kQuiet;
  {
    const OwnCores own_cores(true, [&] { return load.load(); });
    work_until_bound(false);
    load = kBusy;
    work_until_bound(true);
    load = kQuiet;
    work_until_bound(false);
    load = kBusy;
    work_until_bound(true);
  }
  EXPECT_TRUE(bound_threads().empty()) << "they have their affinity back";
  EXPECT_EQ(affinity(), all_);
}

TEST_F(OwnCoresTest, AnotherProcessIsSeen) {
  const OwnCores own_cores(true);
  const pid_t other = ::fork();
  if (other == 0) {
    ::alarm(30);
    for (volatile long i = 0;;) i = i + 1;
  }
  work_until_bound(true);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

// libgomp ends threads that a region does not need, as oneDNN asks, and starts others for the next: as the first is
// then.
TEST_F(OwnCoresTest, ThreadsThatBeginLaterAreBoundAndFreedAsAllAre) {
  if (all_.size() < 3) GTEST_SKIP() << "needs three cores: libgomp keeps the second thread";
  {
    const OwnCores own_cores(true, [] { return kBusy; });
    for (int time = 0; time < 3; ++time) {
      GOMP_parallel([](void*) {}, nullptr, static_cast<unsigned>(all_.size()) - 1, 0);
      work_of_libtorch();
      EXPECT_EQ(bound_threads(), each());
    }
  }
  EXPECT_TRUE(bound_threads().empty()) << "none took over that the first was bound";
}

TEST_F(OwnCoresTest, FewerThreadsThanCoresAreLeftToTheKernel) {
  at::set_num_threads(static_cast<int>(all_.size()) - 1);
  const OwnCores own_cores(true, [] { return kBusy; });
  work_of_libtorch();
  EXPECT_TRUE(bound_threads().empty());
}

TEST_F(OwnCoresTest, OtherThreadsHaveAllCores) {
  const OwnCores own_cores(true, [] { return kBusy; });
  work_of_libtorch();
  ASSERT_TRUE(is_bound());
  EXPECT_EQ(usable_cores(), static_cast<int>(all_.size()));  // not the one of this thread
  std::vector<int> seen;
  start_thread([&] { seen = affinity(); }, "a thread", "none").join();
  EXPECT_EQ(seen, all_);
  unbind();  // before others' code
  std::thread([&] { seen = affinity(); }).join();
  EXPECT_EQ(seen, all_);
  work_of_libtorch();
  EXPECT_TRUE(is_bound()) << "bound again";
}

TEST_F(OwnCoresTest, NoBitChanges) {
  at::manual_seed(3);
  const at::Tensor x = at::rand({1 << 20});
  const at::Tensor free = x.sum();
  const OwnCores own_cores(true, [] { return kBusy; });
  EXPECT_TRUE(at::equal(x.sum(), free));
  EXPECT_TRUE(is_bound());
}

}  // namespace
}  // namespace octet
