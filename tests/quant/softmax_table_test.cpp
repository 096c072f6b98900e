// SPDX-License-Identifier: Apache-2.0
// The exponentials of a softmax: worked numbers, and what an Int8Graph demands of them.
#include "src/quant/node_constants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/net/int8_graph.h"

namespace octet {
namespace {

TEST(SoftmaxTable, WorkedNumbers) {
  const auto table = softmax_table({static_cast<float>(std::log(2.0)), 100, 0, 255});
  ASSERT_EQ(table.size(), 256u);
  EXPECT_EQ(table[0], 32768);
  EXPECT_EQ(table[1], 16384);
  EXPECT_EQ(table[10], 32);
  EXPECT_EQ(table[15], 1);
  EXPECT_EQ(table[17], 0);  // a quarter
}

TEST(SoftmaxTable, AnyScaleStartsAtOneAndFalls) {
  for (const float scale : {1e-37f, 1e-4f, 0.02f, 0.7f, 30.0f, 1e37f}) {
    const auto table = softmax_table({scale, 0, -128, 127});
    EXPECT_EQ(table[0], kExponentialOne) << scale;
    EXPECT_TRUE(std::is_sorted(table.rbegin(), table.rend())) << scale;
    EXPECT_GE(table[255], 0) << scale;
  }
}

}  // namespace
}  // namespace octet
