// Choosing kernels: what a GPU refuses is left out, what breaks it is not. Needs no GPU.
#include "src/engine/cuda/fastest_candidate.h"

#include <gtest/gtest.h>

#include "kernels/launch_refused.h"

namespace octet::test {
namespace {

using kernels::LaunchRefused;

const std::vector<std::string> kNames = {"wide", "narrow", "slow", "direct"};

TEST(FastestCandidate, TakesTheLeastTime) {
  const std::vector<double> times = {3, 1, 7, 1};
  std::vector<double> hopeless;
  EXPECT_EQ(fastest_candidate(kNames, {.hopeless = 3},
                              [&](size_t candidate, double limit) {
                                hopeless.push_back(limit);
                                return times[candidate];
                              }),
            1u);
  EXPECT_EQ(hopeless, (std::vector<double>{std::numeric_limits<double>::max(), 9, 3, 3}));
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
