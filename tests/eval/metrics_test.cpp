// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/eval/metrics.h"

namespace octet {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Metrics, ArgMaxTakesTheLowestOfEqualLogits) {
  EXPECT_EQ(arg_max(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(arg_max(std::vector<float>{-5, -5}), 0);
  EXPECT_EQ(arg_max(std::vector<float>{kNan, -kInf, -2}), 2);
  EXPECT_EQ(arg_max(std::vector<float>{kNan, -kInf}), 1);
  EXPECT_EQ(arg_max(std::vector<float>{kNan, kNan}), 0);
}

TEST(Metrics, RankBreaksTiesByIndex) {
  const std::vector<float> logits = {2, 7, 2, 2, 2, 2, 2};
  const std::vector<int> ranks = {1, 0, 2, 3, 4, 5, 6};
  for (int label = 0; label < 7; ++label) EXPECT_EQ(rank_of(logits, label), ranks[label]) << label;
  EXPECT_EQ(rank_of(std::vector<float>{kNan, 1, 2}, 0), 3);
  EXPECT_EQ(rank_of(std::vector<float>{kNan, 1, 2}, 1), 1);
}

TEST(Metrics, CrossEntropyIsStableAndExact) {
  EXPECT_DOUBLE_EQ(cross_entropy(std::vector<float>{0, 0, 0, 0}, 2), std::log(4.0));
  EXPECT_DOUBLE_EQ(cross_entropy(std::vector<float>{1000, 1000}, 0), std::log(2.0));
  EXPECT_DOUBLE_EQ(cross_entropy(std::vector<float>{-3e38f, 3e38f}, 0), 2 * static_cast<double>(3e38f));
  EXPECT_NEAR(cross_entropy(std::vector<float>{1, 2, 3}, 0), 2.4076059644443806, 1e-15);
}

TEST(Metrics, CountsAndConfusion) {
  Metrics metrics(6);
  const auto add = [&](const std::vector<float>& logits, int64_t label) {
    metrics.add(judge(logits, label));
    return judge(logits, label).prediction;
  };
  EXPECT_EQ(add({9, 1, 2, 3, 4, 5}, 0), 0);  // right
  EXPECT_EQ(add({9, 5, 4, 3, 2, 1}, 4), 0);  // fifth
  EXPECT_EQ(add({9, 5, 4, 3, 2, 1}, 5), 0);  // sixth
  EXPECT_EQ(metrics.labels(), 3);
  EXPECT_DOUBLE_EQ(metrics.top1(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.top5(), 2.0 / 3);
  EXPECT_EQ(metrics.confusion()[0 * 6 + 0], 1);
  EXPECT_EQ(metrics.confusion()[4 * 6 + 0], 1);
  EXPECT_EQ(metrics.confusion()[5 * 6 + 0], 1);
  EXPECT_THROW(judge(std::vector<float>(6), 6), Error);
  EXPECT_THROW(judge(std::vector<float>(6), -1), Error);
}

}  // namespace
}  // namespace octet
