// SPDX-License-Identifier: Apache-2.0
#include "src/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/base/thread_limit.h"

namespace octet {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceOnEveryLoop) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> ran(tasks);
      std::atomic<bool> thread_in_range{true};
      pool.run(tasks, [&](int task, int thread) {
        ran[task]++;
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      for (int task = 0; task < tasks; ++task) ASSERT_EQ(ran[task], 1) << threads << " threads, task " << task;
      EXPECT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsWithPauses) {  // workers asleep and awake
  ThreadPool pool(3);
  std::atomic<long> sum{0};
  for (int loop = 0; loop < 2000; ++loop) {
    pool.run(3, [&](int task, int) { sum += task; });
    if (loop % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(sum, 2000 * 3);
}

// A worker that wakes up late must run each task of the loop that is on, once, with that loop's body: here every loop
// has its own body and its own counts, and bodies are gone when their loop ends.
TEST(ThreadPool, LateWorkersServeTheLoopThatIsOn) {
  ThreadPool pool(4);  // more threads than cores on small machines: workers are often late
  for (int loop = 0; loop < 20000; ++loop) {
    const int tasks = 2 + loop % 7;
    std::vector<std::atomic<int>> ran(tasks);
    const int own = loop;
    pool.run(tasks, [&ran, own, loop](int task, int) { ran[task] += own == loop ? 1 : 1000; });
    for (int task = 0; task < tasks; ++task) ASSERT_EQ(ran[task], 1) << "loop " << loop << ", task " << task;
  }
}

TEST(ThreadPool, TakesAllUsableCores) { EXPECT_EQ(ThreadPool(0).size(), usable_cores()); }

TEST(ThreadPoolDeathTest, AThreadThatDoesNotStartIsAnErrorAndTheOthersEnd) {
  EXPECT_EXIT(testing::run_with_few_threads([] { const ThreadPool pool(40); }), ::testing::ExitedWithCode(1),
              "thread [0-9]+ of 40 did not start \\(.*\\): .*ulimit -u.*; ask for fewer threads");
}

}  // namespace
}  // namespace octet
