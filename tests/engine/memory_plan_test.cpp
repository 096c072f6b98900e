// SPDX-License-Identifier: Apache-2.0
#include "src/engine/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

size_t rounded(size_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

// The most bytes that are live at one step: no plan can do with less.
size_t peak(const std::vector<BufferLife>& buffers) {
  size_t most = 0;
  for (const BufferLife& at : buffers) {
    size_t bytes = 0;
    for (const BufferLife& b : buffers) bytes += b.first <= at.first && at.first <= b.last ? rounded(b.bytes) : 0;
    most = std::max(most, bytes);
  }
  return most;
}

void expect_no_overlap(const std::vector<BufferLife>& buffers, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kBufferAlignment, 0u);
    EXPECT_LE(plan.offsets[i] + buffers[i].bytes, plan.bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool live_together = buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
      const bool share =
          plan.offsets[i] < plan.offsets[j] + buffers[j].bytes && plan.offsets[j] < plan.offsets[i] + buffers[i].bytes;
      EXPECT_FALSE(live_together && share) << "buffers " << i << " and " << j;
    }
  }
}

TEST(MemoryPlan, LiveBuffersNeverOverlap) {
  size_t planned = 0, least = 0, all = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    std::vector<BufferLife> buffers;
    for (int i = random.between(1, 60); i > 0; --i) {
      const int first = random.between(0, 40);
      buffers.push_back({static_cast<size_t>(random.between(0, 5000)), first, first + random.between(0, 8)});
      all += rounded(buffers.back().bytes);
    }
    const MemoryPlan plan = plan_memory(buffers);
    SCOPED_TRACE(seed);
    expect_no_overlap(buffers, plan);
    EXPECT_GE(plan.bytes, peak(buffers));
    planned += plan.bytes;
    least += peak(buffers);
  }
  EXPECT_LT(planned, least * 1.2);
  EXPECT_LT(planned, all / 2);
}

TEST(MemoryPlan, ChainOfEqualLayersNeedsTwoBuffers) {
  std::vector<BufferLife> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({640, i, i + 1});
  EXPECT_EQ(plan_memory(chain).bytes, 1280u);
}

TEST(MemoryPlan, PicksTheSmallestGapThatFits) {
  // Short-lived buffers leave gaps of 512, 192 and 2 * 128 bytes, in this order, between buffers that live throughout.
  const std::vector<BufferLife> buffers = {{1024, 0, 9}, {512, 0, 1}, {448, 0, 9}, {192, 0, 1}, {128, 0, 9},
                                           {128, 0, 1},  {128, 0, 1}, {64, 0, 9},  {64, 2, 9}};
  const MemoryPlan plan = plan_memory(buffers);
  expect_no_overlap(buffers, plan);
  EXPECT_EQ(plan.offsets[8], plan.offsets[3]);
}

TEST(MemoryPlan, AliasKeepsItsSourceAlive) {
  Random random(1);
  NetworkBuilder network(random, {3, 4, 4});
  const int flat = network.flatten(network.max_pool(0));
  network.requantize(0);
  const Int8Graph graph = network.finish(flat);
  const int last = static_cast<int>(graph.nodes.size()) - 1;
  std::vector<int> alias;
  for (int node = 0; node <= last; ++node) alias.push_back(node == flat ? flat - 1 : node);
  const std::vector<BufferLife> lives = lifetimes(graph, std::vector<size_t>(last + 1, 100), alias);
  EXPECT_EQ(lives[flat].bytes, 0u);
  EXPECT_EQ(lives[flat - 1].bytes, 100u);
  EXPECT_EQ(lives[flat - 1].last, flat + 2);  // finish() reads the flattened tensor behind the requantize
}

TEST(MemoryPlan, LargestBatchIsTheLastThatFits) {
  const auto bytes = [](int images) { return size_t{100} + 10 * static_cast<size_t>(images); };
  EXPECT_EQ(largest_batch(109, 64, bytes), 0);
  EXPECT_EQ(largest_batch(110, 64, bytes), 1);
  EXPECT_EQ(largest_batch(479, 64, bytes), 37);
  EXPECT_EQ(largest_batch(480, 64, bytes), 38);
  EXPECT_EQ(largest_batch(100'000, 64, bytes), 63);  // 64 themselves did not fit
  EXPECT_EQ(largest_batch(100'000, 1, bytes), 0);
}

}  // namespace
}  // namespace octet::test
