// SPDX-License-Identifier: Apache-2.0
// Rounding learned by layers and by blocks: outputs get nearer to the float network's, and no code moves by more
// than 1.
#include "src/train/repair/learned_codes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/error.h"
#include "src/train/repair/steps.h"
#include "tests/train/networks.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

/// Returns the error of each unit, as in Reconstructed, between the network as it is and a float walk with `floats`.
std::vector<double> errors(QuantizedModel& model, const Weights& floats, const at::Tensor& x, bool blocks) {
  const Graph& graph = model.prepared().graph;
  std::vector<at::Tensor> wanted(graph.nodes.size()), given(graph.nodes.size());
  const auto output_of = [&](int n, const Unfinished& y) {
    const bool residual = y.residual.defined() && !blocks;
    const at::Tensor sum =
        add_up({.value = y.value.clone(), .bias = y.bias, .residual = residual ? at::Tensor() : y.residual});
    return residual ? sum : finished({.value = sum}, graph.nodes[n].activation);
  };
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    wanted[n] = output_of(n, y);
    return finished(y, graph.nodes[n].activation);
  };
  walk(graph, floats, x, {}, hooks);
  model.forward_changing(x, [&](int n, Unfinished& y) { given[n] = output_of(n, y).clone(); });
  std::vector<double> result;
  for (const RoundingUnit& unit : rounding_units(graph, blocks)) {
    const int n = blocks ? unit.part.last : unit.layers[0];
    result.push_back((given[n] - wanted[n]).square().mean().item<double>() * graph.nodes[n].shape.c);
  }
  return result;
}

std::vector<test::RoundedCase> cases() {
  QuantSpec tensor = uniform_bits(8, 3), full = uniform_bits(6, 3);
  tensor.weight_granularity = Granularity::per_tensor;
  full.weight_range = WeightRange::full;
  return {{build_model(test::other_operators()), tensor, WeightCalibrator::minmax},
          {build_model(test::other_operators()), full, WeightCalibrator::mse},
          {test::residual_network("relu"), uniform_bits(4, 4), WeightCalibrator::mse},
          {test::residual_network("relu"), uniform_bits(8, 2), WeightCalibrator::minmax},
          {test::residual_network("silu"), uniform_bits(8, 3), WeightCalibrator::mse}};
}

void expect_nearer(const test::RoundedCase& c, bool blocks) {
  const Weights weights = test::random_weights(c.graph, 3);
  QuantizedModel model = test::calibrated(c.graph, weights, c.quant, CalibrationMethod::minmax, {.weights = c.weights});
  const at::Tensor x = test::input_images(c.graph.nodes[0].shape, 24);
  Weights floats = weights;
  for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
  const auto before = test::codes(model);
  std::vector<Reconstructed> units;
  reconstruct(model, x, blocks, {.steps = 400, .batch_size = 8},
              [&](const Reconstructed& unit) { units.push_back(unit); });
  const auto after = test::codes(model);

  const c10::NoGradGuard no_grad;
  const std::vector<double> measured = errors(model, floats, x, blocks);
  ASSERT_EQ(units.size(), measured.size());
  int64_t promised = 0, moved = 0;
  int stayed = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    EXPECT_NEAR(units[i].rounded, measured[i], 1e-4 * measured[i]) << units[i].name;
    EXPECT_LE(units[i].rounded, units[i].nearest) << units[i].name;
    EXPECT_EQ(units[i].rounded<units[i].nearest, units[i].moved> 0) << units[i].name;
    stayed += units[i].moved == 0;
    promised += units[i].moved;
  }
  EXPECT_LE(stayed, 1);  // with a few weights the nearest may be the best
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < after.size(); ++i) {
    for (size_t w = 0; w < after[i].size(); ++w) {
      EXPECT_LE(std::abs(after[i][w] - before[i][w]), 1) << i << " " << w;
      moved += after[i][w] != before[i][w];
    }
  }
  EXPECT_EQ(moved, promised);
}

TEST(Reconstruct, EveryLayerComesNearerAndCodesMoveByAtMostOne) {
  for (const test::RoundedCase& c : cases()) expect_nearer(c, /*blocks=*/false);
}

TEST(Reconstruct, EveryBlockComesNearerAndCodesMoveByAtMostOne) {
  for (const test::RoundedCase& c : cases()) expect_nearer(c, /*blocks=*/true);
}

TEST(Reconstruct, EachStepIsToldAndMayEndIt) {
  const Graph graph = build_model(test::other_operators());
  const auto steps_until = [&](int end) {
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
    int steps = 0, units = 0;
    const auto step = [&] {
      if (++steps == end) throw promise_error("ended");
    };
    try {
      reconstruct(
          model, test::input_images(graph.nodes[0].shape, 8), /*blocks=*/false, {.steps = 5, .batch_size = 8},
          [&](const Reconstructed&) { ++units; }, step);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "ended");
    }
    return std::pair{steps, units};
  };
  const int layers = static_cast<int>(rounding_units(graph, /*blocks=*/false).size());
  EXPECT_EQ(steps_until(-1), (std::pair{5 * layers, layers}));
  EXPECT_EQ(steps_until(8), (std::pair{8, 1}));  // in the middle of the second layer
}

TEST(Reconstruct, TheSameSeedGivesTheSameBits) {
  const Graph graph = build_model(test::other_operators());
  for (const bool blocks : {false, true}) {
    std::vector<std::vector<std::vector<int8_t>>> results;
    for (const uint64_t seed : {1, 1, 2}) {
      QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
      reconstruct(model, test::input_images(graph.nodes[0].shape, 16), blocks,
                  {.steps = 50, .batch_size = 8, .seed = seed}, [](const Reconstructed&) {});
      results.push_back(test::codes(model));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_NE(results[0], results[2]);
  }
}

std::vector<std::vector<std::string>> names(const Graph& graph, bool blocks) {
  std::vector<std::vector<std::string>> result;
  for (const RoundingUnit& unit : rounding_units(graph, blocks)) {
    result.emplace_back();
    for (const int n : unit.layers) result.back().push_back(graph.nodes[n].name);
  }
  return result;
}

TEST(Reconstruct, BlocksLieBetweenPlacesOfOneTensor) {
  using Names = std::vector<std::vector<std::string>>;
  const QuantSpec spec = uniform_bits(8, 4);
  const auto prepared = [&](const Graph& graph) {
    return test::calibrated(graph, test::random_weights(graph, 1), spec).prepared().graph;
  };
  const Graph residual = prepared(test::residual_network("relu"));
  EXPECT_EQ(names(residual, true), (Names{{"a"}, {"b", "c", "d"}, {"e"}, {"l"}}));
  EXPECT_EQ(names(residual, false), (Names{{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"l"}}));
  const Graph branches = prepared(build_model(test::other_operators()));
  EXPECT_EQ(names(branches, true), (Names{{"a"}, {"g"}, {"l1"}, {"l2"}}));
}

TEST(Reconstruct, BlocksOfSeveralOutputsAreRefused) {
  Graph graph = test::residual_network("relu");
  graph.outputs.push_back(2);
  try {
    rounding_units(graph, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2 outputs; take adaround"), std::string::npos) << error.what();
  }
  EXPECT_EQ(names(graph, false).size(), 6u);
}

/// Images are drawn in one order, and the schedule follows the papers, over a table that is filled more than once.
TEST(Reconstruct, StepsGoOnBeyondTheTable) {
  constexpr int kSteps = 2500, kImages = 50;
  Steps steps({.steps = kSteps, .batch_size = 4, .seed = 3}, kImages, at::kCPU);
  Steps once({.steps = 1000, .batch_size = 4, .seed = 3}, kImages, at::kCPU);
  std::vector<double> powers;
  for (int step = 0; step < kSteps; ++step) {
    steps.prepare(step);
    const Steps::Row row = steps.next();
    ASSERT_EQ(row.images.sizes(), at::IntArrayRef({4}));
    EXPECT_GE(row.images.min().item<int64_t>(), 0);
    EXPECT_LT(row.images.max().item<int64_t>(), kImages);
    EXPECT_EQ(row.push.item<float>(), step < kSteps / 5 ? 0 : 10) << step;
    powers.push_back(row.power.item<double>());
    if (step < 1000) {
      once.prepare(step);
      EXPECT_TRUE(row.images.equal(once.next().images)) << step;
    }
  }
  EXPECT_EQ(powers[0], 20);
  EXPECT_EQ(powers[kSteps / 5], 20);
  EXPECT_NEAR(powers[kSteps * 3 / 5], 11, 1e-4);  // half way
  EXPECT_NEAR(powers.back(), 2, 1e-3);
  EXPECT_TRUE(std::is_sorted(powers.rbegin(), powers.rend()));
}

/// The gradient is compared with autograd's of the paper's formulas.
TEST(Reconstruct, TheGradientByHandIsThatOfTheFormulas) {
  const at::Tensor a = at::randn({4, 3, 2, 2}), b = at::randn({5, 4});
  const auto scale = [](const at::Tensor& w) { return w.flatten(1).abs().amax(1) / 3; };
  Rounding rounding(
      {{a, scale(a), weight_codes(3, WeightRange::symmetric)}, {b, scale(b), weight_codes(3, WeightRange::symmetric)}});
  rounding.logits().mul_(3);  // some beyond 0 and 1
  const at::Tensor at_a = at::randn(a.sizes()), at_b = at::randn(b.sizes()), power = at::full({}, 5.0f),
                   push = at::full({}, 0.7f);
  const Rounding::Soft soft = rounding.softly_rounded();
  const at::Tensor by_hand = rounding.gradient(soft, {at_a, at_b}, power, push);

  const at::Tensor logits = rounding.logits().detach().clone().requires_grad_(true);
  const at::Tensor up = (logits.sigmoid() * 1.2 - 0.1).clamp(0, 1);
  const at::Tensor scales = at::cat({scale(a).repeat_interleave(12), scale(b).repeat_interleave(4)});
  const at::Tensor weighed = (scales * up * at::cat({at_a.flatten(), at_b.flatten()})).sum();
  const at::Tensor loss = weighed + 0.7 * (1 - (2 * up - 1).abs().pow(5)).mean();
  const at::Tensor wanted = torch::autograd::grad({loss}, {logits})[0];
  EXPECT_GT(wanted.eq(0).sum().item<int64_t>(), 0);
  EXPECT_TRUE(at::allclose(by_hand, wanted, 1e-5, 1e-7)) << (by_hand - wanted).abs().max();
}

}  // namespace
}  // namespace octet
