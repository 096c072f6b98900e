// SPDX-License-Identifier: Apache-2.0
// QDrop: which elements are dropped, at which edges of a block, and that other codes are learned for it.
#include "src/train/repair/steps.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/train/repair/learned_codes.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

TEST(Reconstruct, DroppedElementsAreThoseBeforeQuantizationAndTheOthersAreNot) {
  const at::Tensor before = at::randn({4, 50, 10, 10}), quantized = before + 1000;
  const Drop drop(0.3, 7, at::kCPU), again(0.3, 7, at::kCPU), other(0.3, 8, at::kCPU), none(0, 7, at::kCPU);
  const at::Tensor first = drop(quantized, before), second = drop(quantized, before);
  const at::Tensor dropped = first.eq(before);
  EXPECT_TRUE(dropped.logical_or(first.eq(quantized)).all().item<bool>());
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), 0.3, 0.02);
  EXPECT_FALSE(first.equal(second)) << "each step draws anew";
  EXPECT_TRUE(again(quantized, before).equal(first));
  EXPECT_TRUE(again(quantized, before).equal(second));
  EXPECT_FALSE(other(quantized, before).equal(first));
  EXPECT_TRUE(none(quantized, before).equal(quantized));
  EXPECT_TRUE(Drop(1, 7, at::kCPU)(quantized, before).equal(before));
}

/// With share 0 a block is as deployed; with 1 it is the float network's, except for its weights; with 1/2 it is
/// neither.
TEST(Reconstruct, ABlockDropsQuantizationAtEveryEdgeInside) {
  const c10::NoGradGuard no_grad;
  const Graph graph = test::residual_network("silu");
  const Weights weights = test::random_weights(graph, 3);
  QuantizedModel model = test::calibrated(graph, weights, uniform_bits(3, 8));
  const at::Tensor x = test::input_images(graph.nodes[0].shape, 8);
  const Graph& fused = model.prepared().graph;
  for (const RoundingUnit& unit : rounding_units(fused, true)) {
    const Piece piece = block(model, unit, weights);
    const at::Tensor in = walk_part(fused, weights, {0, unit.part.first}, x, {});
    std::vector<at::Tensor> own;
    for (const int n : unit.layers) own.push_back(weights.at(fused.nodes[n].name + ".weight"));
    const auto dropping = [&](double share) { return piece.dropping(in, own, Drop(share, 5, at::kCPU)); };
    const std::string name = fused.nodes[unit.part.last].name;
    EXPECT_TRUE(at::allclose(dropping(1), piece.wanted(in), 1e-4, 1e-5)) << name;
    const bool has_inner_edges = unit.layers.size() > 1;
    // The input is quantized before the block.
    EXPECT_TRUE(unit.part.first == 0 || dropping(0).equal(piece.quantized(in, own))) << name;
    EXPECT_NE(dropping(0.5).equal(dropping(0)), has_inner_edges) << name;
    EXPECT_NE(dropping(0.5).equal(dropping(1)), has_inner_edges) << name;
  }
}

TEST(Reconstruct, DroppingLearnsOtherCodesTheSameForASeed) {
  const Graph graph = test::residual_network("relu");
  const auto learned = [&](double drop, uint64_t seed) {
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(3, 3));
    reconstruct(model, test::input_images(graph.nodes[0].shape, 16), /*blocks=*/true,
                {.steps = 100, .batch_size = 8, .seed = seed, .drop = drop},
                [](const Reconstructed& unit) { EXPECT_LE(unit.rounded, unit.nearest) << unit.name; });
    return test::codes(model);
  };
  const auto without = learned(0, 1), half = learned(0.5, 1), whole = learned(1, 1);
  EXPECT_EQ(learned(0.5, 1), half);
  for (size_t layer : {0, 2}) EXPECT_NE(half[layer], without[layer]) << layer;
  EXPECT_NE(whole, half);
  EXPECT_NE(whole, without);
}

TEST(Reconstruct, LayersDoNotDrop) {
  const Graph graph = test::residual_network("relu");
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(3, 3));
  EXPECT_THROW(reconstruct(model, test::input_images(graph.nodes[0].shape, 8), /*blocks=*/false,
                           {.steps = 5, .drop = 0.5}, [](const Reconstructed&) {}),
               Error);
}

}  // namespace
}  // namespace octet
