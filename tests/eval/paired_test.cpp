// SPDX-License-Identifier: Apache-2.0
// Expected numbers are those of the books that paired.h names.
#include "src/eval/evaluate.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(Paired, IntervalOfAgrestisExample) {
  const Paired p = paired(1600, 150, 86);
  EXPECT_DOUBLE_EQ(p.points, 4.0);
  EXPECT_NEAR(p.low, 2.13, 0.005);
  EXPECT_NEAR(p.high, 5.87, 0.005);
  EXPECT_LT(p.p_value, 0.001);
  EXPECT_TRUE(p.told_apart());
  const Paired back = paired(1600, 86, 150);
  EXPECT_DOUBLE_EQ(back.points, -4.0);
  EXPECT_DOUBLE_EQ(back.low, -p.high);
  EXPECT_DOUBLE_EQ(back.p_value, p.p_value);
  EXPECT_TRUE(back.told_apart());
}

TEST(Paired, MidPOfFagerlandsExample) {
  EXPECT_NEAR(paired(21, 1, 7).p_value, 0.0391, 5e-5);
  EXPECT_NEAR(paired(21, 7, 1).p_value, 0.0391, 5e-5);
  EXPECT_NEAR(paired(100, 5, 5).p_value, 1, 1e-12);
  EXPECT_DOUBLE_EQ(paired(100, 0, 0).p_value, 1);
  EXPECT_NEAR(paired(50000, 600, 500).p_value, 0.0026, 1e-4);  // no factorial overflows
}

TEST(Paired, FewDiscordantImagesAreNotTakenForADifference) {
  const Paired p = paired(10000, 4, 0);
  EXPECT_GT(p.low, 0);  // of the interval alone
  EXPECT_NEAR(p.p_value, 0.0625, 1e-9);
  EXPECT_FALSE(p.told_apart());
  EXPECT_TRUE(paired(10000, 6, 0).told_apart());
  EXPECT_FALSE(paired(10000, 30, 20).told_apart());
  EXPECT_FALSE(paired(0, 0, 0).told_apart());
}

TEST(Paired, CountsTheImagesThatOnlyOneHasRight) {
  Evaluation a, b;
  a.right = {true, true, true, false, false, true};
  b.right = {true, false, false, true, false};  // saw one image less
  const Paired p = paired(a, b);
  EXPECT_EQ(p.images, 5);
  EXPECT_EQ(p.only_first, 2);
  EXPECT_EQ(p.only_second, 1);
  EXPECT_DOUBLE_EQ(p.points, 20);
}

}  // namespace
}  // namespace octet
