// SPDX-License-Identifier: Apache-2.0
// Which steps of several sizes are launched, recorded and replayed. That they do the same work then is tested on a GPU
// (step_graph_cuda_test.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/train/model/step_graph.h"

namespace octet {
namespace {

using Step = StepPlans::Plan::Step;

/// What is planned for steps of these sizes: "l" launched, "r" recorded, "p" replayed, "-" before it where the
/// recordings are dropped. room: the multiple of the recordings' memory that there is beside them.
std::string planned(StepPlans& plans, const std::vector<int64_t>& sizes, double room) {
  std::string text;
  for (const int64_t size : sizes) {
    const StepPlans::Plan plan = plans.next(size, [&](double times) { return times <= room; });
    text += plan.drop ? "-" : "";
    text += plan.step == Step::launch ? 'l' : plan.step == Step::record ? 'r' : 'p';
  }
  return text;
}

std::string planned(const std::vector<int64_t>& sizes, double room) {
  StepPlans plans(/*warm_ups=*/2, /*alone=*/true);
  return planned(plans, sizes, room);
}

TEST(StepPlans, ASizeIsRecordedOnceItsOwnWarmUpsAreDone) {
  EXPECT_EQ(planned({0, 0, 0, 0, 0}, 0), "llrpp");
  EXPECT_EQ(planned({5, 5, 5, 3, 5, 3, 3, 3, 5}, 1), "llrlplrpp") << "another size leaves the recordings";
}

TEST(StepPlans, ALargerSizeIsRecordedBeforeSmallerOnes) {
  EXPECT_EQ(planned({3, 3, 3, 5, 5, 3, 5, 5, 3, 3, 5}, 2), "llrllp-rprpp");
}

TEST(StepPlans, WithoutRoomBesideThemRecordingsAreDroppedUntilAllSizesAreWarm) {
  EXPECT_EQ(planned({3, 3, 3, 5, 3, 5, 3, 5, 3}, 1), "llr-lllr-rr") << "5 takes 5/3 of what 3 has";
  EXPECT_EQ(planned({5, 5, 5, 3, 5, 3, 5, 3, 5, 5}, 0.5), "llr-lllrrpp");
  EXPECT_EQ(planned({5, 5, 5, 3, 5, 3, 3}, 0.6), "llrlplr");
}

TEST(StepPlans, OfSeveralProcessesDependOnSizesAlone) {
  StepPlans plans(/*warm_ups=*/2, /*alone=*/false);
  EXPECT_EQ(planned(plans, {3, 3, 3, 2, 3, 2, 3, 2}, 100), "llr-lllrr");
}

/// 75 sizes, as data.multi_scale 0.5 makes of 300 pixels: a rule that waits for all of them records nothing for long.
TEST(StepPlans, ManySizesAreSoonReplayed) {
  StepPlans plans(StepGraph::kWarmUps, /*alone=*/true);
  std::mt19937 random(7);
  std::vector<int64_t> sizes(3000);
  for (int64_t& size : sizes) size = 38 + static_cast<int64_t>(random() % 75);
  const std::string text = planned(plans, sizes, 3);
  const auto count = [](const std::string& of, char what) { return std::count(of.begin(), of.end(), what); };
  EXPECT_GT(count(text.substr(0, 600), 'p'), 150) << text;
  EXPECT_EQ(count(text, 'l'), 75 * StepGraph::kWarmUps);
  EXPECT_LT(count(text, 'r'), 4 * 75) << "those that a larger one drops are recorded again";
  EXPECT_GT(count(text, 'p'), 2400);
}

TEST(StepPlans, ASizeWhoseRecordingFailedIsNotReplayed) {
  StepPlans plans(/*warm_ups=*/1, /*alone=*/true);
  EXPECT_EQ(planned(plans, {4, 4}, 1), "lr");
  plans.failed(4);
  EXPECT_EQ(planned(plans, {4, 4}, 1), "rp");
}

}  // namespace
}  // namespace octet
