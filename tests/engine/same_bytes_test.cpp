// SPDX-License-Identifier: Apache-2.0
// The promise: reference and every path of the cpu engine give the same bytes at every node.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/engine/network_coverage.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

constexpr int kShards = 4;

class Convolutions : public testing::TestWithParam<int> {};

TEST_P(Convolutions, SameBytesOnAllPaths) {
  for (const uint64_t seed : test_seeds(1 + 500 * GetParam(), 500)) {
    const Int8Graph graph = random_convolution(seed);
    const int batch = static_cast<int>(seed % 3) + 1;
    ASSERT_EQ(cpu_difference(graph, random_images(graph, batch, seed), batch), "") << "OCTET_TEST_SEED=" << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Random, Convolutions, testing::Range(0, kShards));

TEST(Networks, SameBytesOnAllPaths) {
  NetworkCoverage coverage;
  uint64_t hash = 0xcbf29ce484222325;  // .ci/arm64 compares it with another machine's
  for (const uint64_t seed : test_seeds(1, network_count(600))) {
    const Int8Graph graph = random_network(seed);
    const int batch = static_cast<int>(seed % 3) + 1;
    ASSERT_EQ(cpu_difference(graph, random_images(graph, batch, seed), batch, &hash), "") << "OCTET_TEST_SEED=" << seed;
    coverage.add(graph, batch);
  }
  std::cout << coverage.text() << "; hash of all bytes: " << hash << "\n";
  EXPECT_EQ(coverage.rare(), "");
}

// The generator is worth nothing if its networks do not reach what they are meant to reach.
TEST(Networks, CoverEveryScheme) {
  std::vector<int> signs(2);
  int depthwise = 0, dilated = 0, affine = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    for (const Int8Node& node : random_network(seed).nodes) {
      ++signs[node.out.is_signed()];
      affine += node.out.zero_point != 0;
      if (node.op != Int8Op::conv2d) continue;
      depthwise += node.groups > 1;
      dilated += node.window.dilation_h > 1;
    }
  }
  for (const int count : {signs[0], signs[1], depthwise, dilated, affine}) EXPECT_GE(count, 20);
}

TEST(Networks, WhatTheyLackIsNamed) {
  NetworkCoverage coverage;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const Int8Graph graph = random_network(seed);
    const bool shuffles = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                      [](const Int8Node& node) { return node.op == Int8Op::channel_shuffle; });
    coverage.add(shuffles ? random_convolution(seed) : graph, 1);
  }
  EXPECT_EQ(coverage.rare(), "channel_shuffle");
}

// Codes that all sit at one end of their range would hide every difference.
TEST(Networks, CodesAreSpread) {
  size_t inside = 0, codes = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Int8Graph graph = random_convolution(seed);
    const auto program = find_engine("reference").compile(graph, {});
    const Trace result = trace(*program, graph, random_images(graph, 1, seed), 1);
    for (size_t n = 1; n + 1 < graph.nodes.size(); ++n) {
      const Int8Node& node = graph.nodes[n];
      if (node.op != Int8Op::conv2d) continue;
      for (const uint8_t byte : result.nodes[n]) {
        const int code = node.out.is_signed() ? static_cast<int8_t>(byte) : byte;
        inside += code > node.clamp_min && code < node.clamp_max;
        ++codes;
      }
    }
  }
  EXPECT_GT(inside, codes / 4) << codes << " codes";
}

}  // namespace
}  // namespace octet::test
