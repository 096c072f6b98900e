// SPDX-License-Identifier: Apache-2.0
// Which launches may run at the same time. Needs no GPU.
#include "src/engine/memory_plan.h"

#include <gtest/gtest.h>

#include <array>

namespace octet::test {
namespace {

std::array<uint8_t, 100> memory;

ByteRange at(size_t first, size_t count) { return {memory.data() + first, count}; }

TEST(Beside, NeitherWritesWhatTheOtherReadsOrWrites) {
  const Traffic before{.reads = {at(0, 10), at(20, 10)}, .writes = {at(40, 10), at(60, 10)}};
  const auto beside_it = [&](const ByteRange& read, const ByteRange& written) {
    const Traffic node{.reads = {at(90, 1), read}, .writes = {at(95, 1), written}};
    EXPECT_EQ(independent(before, node), independent(node, before));
    return independent(before, node);
  };
  EXPECT_TRUE(beside_it(at(20, 10), at(80, 5))) << "both read the same";
  for (const size_t first : {0, 20}) EXPECT_FALSE(beside_it(at(80, 1), at(first, 10))) << "it overwrites what is read";
  for (const size_t first : {40, 60}) {
    EXPECT_FALSE(beside_it(at(80, 1), at(first, 10))) << "both write";
    EXPECT_FALSE(beside_it(at(first, 10), at(80, 1))) << "it reads what is written";
  }
}

TEST(Beside, ASingleByteCounts) {
  const Traffic before{.reads = {}, .writes = {at(40, 10)}};
  const auto free = [&](size_t first, size_t count) {
    return independent(before, {.reads = {at(first, count)}, .writes = {}});
  };
  EXPECT_TRUE(free(30, 10)) << "it ends where the other begins";
  EXPECT_TRUE(free(50, 10));
  EXPECT_FALSE(free(30, 11));
  EXPECT_FALSE(free(49, 1));
  EXPECT_FALSE(free(45, 2)) << "it lies within";
  EXPECT_FALSE(free(30, 40)) << "the other lies within";
}

// Node n writes bytes 10 n to 10 n + 9. 1 and 2 are the inputs of the pair 3, 4; 5 reads what lies between.
class BesideGroup : public ::testing::Test {
 protected:
  BesideGroup() {
    graph_.nodes.resize(8);
    graph_.nodes[3].inputs = {1, 2};
    graph_.nodes[4].inputs = {3};
    graph_.nodes[5].inputs = {3};
    graph_.nodes[6].inputs = {1};
    graph_.nodes[7].inputs = {6, 2};
  }
  static ByteRange output(int node) { return at(10 * node, 10); }
  Traffic of(int node) const { return traffic_of(graph_, node, output); }
  Traffic of(GroupKind kind, std::vector<int> nodes) const {
    return traffic_of(graph_, NodeGroup{kind, std::move(nodes)}, output);
  }
  /// A node that writes where that one does, and reads nothing.
  static Traffic overwriting(int node) { return {.reads = {}, .writes = {output(node)}}; }

  Int8Graph graph_;
};

TEST_F(BesideGroup, OfANodeAreItsInputsAndItsOutput) {
  EXPECT_FALSE(independent(of(3), of(4)));
  EXPECT_TRUE(independent(of(4), of(5))) << "the two that begin a block";
  for (const int node : {1, 2, 3}) EXPECT_FALSE(independent(of(3), overwriting(node))) << node;
  EXPECT_TRUE(independent(of(3), overwriting(4)));
}

TEST_F(BesideGroup, APairThatWritesBothIsHeldToBoth) {
  const Traffic pair = of(GroupKind::expand_reduce, {3, 4});
  EXPECT_FALSE(independent(pair, of(5))) << "the next block's other way reads the wide tensor";
  for (const int node : {1, 2, 3, 4}) EXPECT_FALSE(independent(pair, overwriting(node))) << node;
  EXPECT_TRUE(independent(pair, of(6))) << "both read 1";
}

TEST_F(BesideGroup, WhatOtherGroupsKeepInsideIsFree) {
  const Traffic group = of(GroupKind::inverted_residual, {6, 7});
  EXPECT_TRUE(independent(group, overwriting(6))) << "a later node may have that memory";
  for (const int node : {1, 2, 7}) EXPECT_FALSE(independent(group, overwriting(node))) << node;
}

}  // namespace
}  // namespace octet::test
