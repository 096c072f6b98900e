// SPDX-License-Identifier: Apache-2.0
// What an Int8Graph says of itself: how the image becomes codes, and the names of its operators.
#include "src/net/int8_graph.h"

#include <gtest/gtest.h>

#include "tests/net/test_graphs.h"

namespace octet {
namespace {

TEST(InputTable, QuantizesEveryPixel) {
  Int8Graph graph = every_op_graph();
  graph.nodes[0].out = {0.5f, 3, 0, 255};
  graph.preprocessing.mean[0] = 0;
  graph.preprocessing.std[0] = 0.1f;
  const std::vector<uint8_t> table = input_table(graph, 0);
  ASSERT_EQ(table.size(), 256u);
  EXPECT_EQ(table[0], 3);
  EXPECT_EQ(table[51], 7);    // 51 / 255 / 0.1 / 0.5 = 4
  EXPECT_EQ(table[255], 23);  // 1 / 0.1 / 0.5 = 20
  graph.nodes[0].out = {0.5f, 0, -128, 127};
  graph.preprocessing.mean[0] = 1;
  EXPECT_EQ(input_table(graph, 0)[0], static_cast<uint8_t>(-20));
}

TEST(Int8Ops, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(Int8Op::prelu); ++i) {
    EXPECT_EQ(int8_op_from_name(int8_op_name(static_cast<Int8Op>(i))), static_cast<Int8Op>(i));
  }
  EXPECT_NE(error_of([] { int8_op_from_name("attention"); }).find("attention"), std::string::npos);
}

}  // namespace
}  // namespace octet
