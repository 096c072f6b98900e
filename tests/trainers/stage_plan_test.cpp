// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/stage_plan.h"

#include <gtest/gtest.h>

#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::message_of;

PartCost part(const std::string& last, double milliseconds, double kept) {
  return {.last = last,
          .milliseconds = milliseconds,
          .fastest = milliseconds - 0.25,
          .slowest = 2 * milliseconds,
          .kept_bytes = kept,
          .border_bytes = 8,
          .weight_bytes = 0};
}

TEST(StagePlan, TheBatchIsDoneAsEarlyAsItCanBe) {
  const std::vector<PartCost> parts{part("a", 5, 1), part("b", 1, 1), part("c", 4, 1), part("d", 3, 1),
                                    part("e", 2, 1)};
  const StagePlan two = plan_stages(parts, 2, 8);
  EXPECT_EQ(two.layers, std::vector<std::string>{"b"});  // 6 and 9: 8 * 9 + 6 in all; behind c 10 and 5: 8 * 10
  EXPECT_EQ(two.stages[0].milliseconds, 6);
  EXPECT_EQ(two.stages[1].milliseconds, 9);
  EXPECT_EQ(two.stages[1].fastest, 8.25);  // of three parts
  EXPECT_EQ(two.stages[1].slowest, 18);
  EXPECT_EQ(two.stages[1].last, "e");
  EXPECT_EQ(two.stages[0].border_bytes, 8);
  EXPECT_DOUBLE_EQ(two.speed_up, 8 * 15.0 / (8 * 9 + 6));
  const StagePlan three = plan_stages(parts, 3, 8);
  EXPECT_EQ(three.layers, (std::vector<std::string>{"a", "c"}));  // 5, 5, 5
  EXPECT_NE(message_of(ExitCode::usage, [&] { plan_stages(parts, 6, 8); }).find("6 stages: the network has 5 parts"),
            std::string::npos);
}

/// While the second waits for its first micro-batch, and after its last one, only the first has work: it may have more.
TEST(StagePlan, ALaterStageHasLess) {
  const std::vector<PartCost> parts{part("a", 10, 1), part("b", 1, 4), part("c", 10, 1)};
  EXPECT_EQ(plan_stages(parts, 2, 8).layers, std::vector<std::string>{"b"});  // 8 * 10 + 11; behind a 8 * 11 + 10
}

/// The first of two stages holds four micro-batches, the second two.
TEST(StagePlan, OfCutsAsFastTheFullestStageHoldsTheLeast) {
  const std::vector<PartCost> parts{part("a", 50, 100), part("b", 0.5, 400), part("c", 50, 100)};
  const StagePlan plan = plan_stages(parts, 2, 8);
  EXPECT_EQ(plan.layers, std::vector<std::string>{"a"});
  EXPECT_EQ(plan.stages[0].kept_bytes, 400);
  EXPECT_EQ(plan.stages[1].kept_bytes, 1000);
  EXPECT_EQ(plan_stages(parts, 2, 1).stages[0].kept_bytes, 100);  // one micro-batch is all there is
}

}  // namespace
}  // namespace octet
