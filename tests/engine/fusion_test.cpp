// SPDX-License-Identifier: Apache-2.0
// Which look-ups a convolution does itself, and what that saves.
#include "src/engine/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/conv/conv2d.h"
#include "src/engine/engine.h"
#include "tests/engine/network_builder.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

TEST(Fusion, ALookupIsMergedIntoTheConvolutionThatOnlyItReads) {
  Random random(1);
  NetworkBuilder network(random, {3, 8, 8});
  const int first = network.convolution(0), merged = network.lookup(first);
  const int shared = network.convolution(merged), apart = network.lookup(shared);
  const int both = network.mul(shared, apart);  // squeeze and excite reads the codes too
  const int shown = network.convolution(both), behind = network.lookup(shown);
  network.output(shown);
  const int pooled = network.max_pool(behind), after_pool = network.lookup(pooled);
  const Int8Graph graph = network.finish(network.flatten(after_pool));
  const std::vector<int> convolution = merged_convolutions(graph);
  ASSERT_EQ(convolution.size(), graph.nodes.size());
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    EXPECT_EQ(convolution[node], node == merged ? first : -1) << "node " << node;
  }
}

// Three convolutions with a look-up each: their codes need no memory unless a tap asks for them.
TEST(Fusion, TheCpuStoresNoCodesOfAMergedConvolution) {
  Random random(2);
  NetworkBuilder network(random, {4, 16, 16});
  int x = 0;
  for (int layer = 0; layer < 3; ++layer) x = network.lookup(network.convolution(x));
  const Int8Graph graph = network.finish(network.flatten(x));
  const auto program = find_engine("cpu").compile(graph, {.max_batch = 1, .threads = 1});
  size_t largest_pair = 0;
  for (int node = 2; node <= 6; node += 2) {
    const auto bytes = [&](int of) {
      const Shape& shape = graph.nodes[of].shape;
      const size_t stride = kernels::cpu_channel_stride(shape.c);
      return (shape.h * shape.w * stride + kernels::kCpuReadSlack + 63) / 64 * 64;
    };
    largest_pair = std::max(largest_pair, bytes(node == 2 ? 0 : node - 2) + bytes(node));
  }
  EXPECT_EQ(program->arena_bytes(), largest_pair);
  EXPECT_EQ(cpu_difference(graph, random_images(graph, 6, 1), 6), "");
  for (int node = 2; node <= 6; node += 2) {
    EXPECT_NE(program->layers()[node - 1].kernel.find("_lookup"), std::string::npos);
    EXPECT_EQ(program->layers()[node].kernel, "merged");
  }
}

// A row of a look-up and a flatten behind a convolution, and what is behind the row.
TEST(Fusion, MergedNodesAndAliasesAreComputedByTheFirstOfTheirRow) {
  Random random(3);
  NetworkBuilder network(random, {3, 8, 8});
  const int convolution = network.convolution(0), lookup = network.lookup(convolution);
  const int flat = network.flatten(lookup);
  const Int8Graph graph = network.finish(flat);
  std::vector<std::string> kernels(graph.nodes.size(), "own");
  kernels[lookup] = "merged", kernels[flat] = "alias";
  const std::vector<int> by = computed_by(graph, kernels);
  for (int node = 0; node < static_cast<int>(by.size()); ++node)
    EXPECT_EQ(by[node], node == lookup || node == flat ? convolution : node) << node;
  std::vector<LayerInfo> layers;
  for (size_t node = 0; node < kernels.size(); ++node)
    layers.push_back({graph.nodes[node].name, kernels[node], "cuda"});
  const std::vector<LayerInfo> said = say_where_merged(graph, layers);
  for (int node = 0; node < static_cast<int>(said.size()); ++node) {
    EXPECT_EQ(said[node].name, layers[node].name);
    EXPECT_EQ(said[node].engine, "cuda");
    EXPECT_EQ(said[node].kernel, node == lookup ? "merged into " + graph.nodes[convolution].name : kernels[node]);
  }
}

}  // namespace
}  // namespace octet::test
