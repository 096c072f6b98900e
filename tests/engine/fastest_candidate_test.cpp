// SPDX-License-Identifier: Apache-2.0
// Choosing kernels: what a GPU refuses is left out, what breaks it is not. Needs no GPU.
#include "src/engine/cuda/choice.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "kernels/core/cuda.h"
#include "src/cuda/memory.h"
#include "src/engine/peers/peer.h"

namespace octet::test {
namespace {

using kernels::LaunchRefused;

const std::vector<std::string> kNames = {"wide", "narrow", "slow", "direct"};

TEST(FastestCandidate, TakesTheLeastTime) {
  const std::vector<double> times = {3, 1, 7, 1};
  std::vector<double> slow_ms;
  EXPECT_EQ(fastest_candidate(kNames, {.slow_ratio = 3},
                              [&](size_t candidate, double limit) {
                                slow_ms.push_back(limit);
                                return times[candidate];
                              }),
            1u);
  EXPECT_EQ(slow_ms, (std::vector<double>{std::numeric_limits<double>::max(), 9, 3, 3}));
}

TEST(FastestCandidate, LeavesOutWhatTheGpuRefuses) {
  EXPECT_EQ(fastest_candidate(kNames, {},
                              [](size_t candidate, double) -> double {
                                if (candidate != 2) throw LaunchRefused("too many resources");
                                return 5;
                              }),
            2u);
}

TEST(FastestCandidate, SaysWhyNoneRan) {
  try {
    fastest_candidate({"wide", "narrow"}, {}, [](size_t candidate, double) -> double {
      throw LaunchRefused(candidate == 0 ? "too much shared memory" : "too many registers");
    });
    FAIL() << "chose a kernel that does not run";
  } catch (const LaunchRefused&) {
    FAIL() << "a search around this one would go on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    EXPECT_STREQ(error.what(),
                 "this GPU launches none of 2 kernels; wide: too much shared memory; narrow: too many registers");
  }
}

TEST(FastestCandidate, ABrokenGpuEndsTheSearch) {
  int tried = 0;
  EXPECT_THROW(fastest_candidate(kNames, {},
                                 [&](size_t candidate, double) -> double {
                                   ++tried;
                                   if (candidate == 1) throw promise_error("an illegal memory access was encountered");
                                   return 1;
                                 }),
               Error);
  EXPECT_EQ(tried, 2);
}

double no_room(size_t bytes) { throw OutOfGpuMemory("no room for " + std::to_string(bytes) + " bytes", bytes, 10); }

TEST(FastestCandidate, LeavesOutWhatHasNoRoom) {
  EXPECT_EQ(fastest_candidate(kNames, {}, [](size_t candidate, double) { return candidate == 0 ? no_room(64) : 1; }),
            1u);
  try {
    fastest_candidate(kNames, {}, [](size_t candidate, double) -> double {
      if (candidate == 0) throw LaunchRefused("too many registers");
      return no_room(candidate == 2 ? 32 : 64);
    });
    FAIL() << "chose a plan that has no room";
  } catch (const OutOfGpuMemory& error) {
    EXPECT_EQ(error.asked(), 32u);
    EXPECT_STREQ(error.what(), "no room for 32 bytes");
  }
}

/// As the plans of cuDNN and cuBLASLt are timed: the first three fail, each in a way of its own.
double time_failing(size_t candidate, int& checks) {
  return time_plan(
      [&]() -> double {
        if (candidate == 0) throw std::runtime_error("of cudnn_frontend");
        if (candidate == 1) return no_room(64);
        if (candidate == 2) throw promise_error("a status");
        return 1;
      },
      [&](const std::string&) { ++checks; });
}

TEST(LibraryPlan, AFailureOfOnePlanLeavesTheOthers) {
  int checks = 0;
  EXPECT_EQ(fastest_candidate(kNames, {}, [&](size_t candidate, double) { return time_failing(candidate, checks); }),
            3u);
  EXPECT_EQ(checks, 2);  // of the GPU; an allocation that failed has launched nothing
}

TEST(LibraryPlan, ABrokenGpuEndsTheSearch) {
  int tried = 0;
  const auto broken = [](const std::string& failure) { throw promise_error("the GPU has failed: " + failure); };
  EXPECT_THROW(fastest_candidate(kNames, {},
                                 [&](size_t, double) {
                                   ++tried;
                                   return time_plan([]() -> double { throw std::runtime_error("fault"); }, broken);
                                 }),
               Error);
  EXPECT_EQ(tried, 1);
}

TEST(LibraryPlan, WhatALibraryThrowsBecomesAnError) {
  EXPECT_EQ(with_errors("cuDNN", [] { return 7; }), 7);
  try {
    with_errors("cuDNN 9", []() -> int { throw std::runtime_error("no engine"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cuDNN 9: no engine");
    EXPECT_EQ(error.code(), ExitCode::promise);
  }
  EXPECT_THROW(with_errors("cuDNN", []() -> int { throw std::bad_alloc(); }), Error);
  EXPECT_THROW(with_errors("cuDNN", []() -> int { return static_cast<int>(no_room(1)); }), OutOfGpuMemory);
}

TEST(FastestCandidate, StopsWhenTheTimeIsOverAndOneRan) {
  std::vector<size_t> tried;
  EXPECT_EQ(fastest_candidate(kNames, {.milliseconds = -1},
                              [&](size_t candidate, double) -> double {
                                tried.push_back(candidate);
                                if (candidate == 0) throw LaunchRefused("too many registers");
                                return 1;
                              }),
            1u);
  EXPECT_EQ(tried, (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace octet::test
