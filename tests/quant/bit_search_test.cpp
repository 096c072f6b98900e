// SPDX-License-Identifier: Apache-2.0
// Plans of bits by layer: steps against every combination, what may be chosen, what a plan costs.
#include "src/quant/bit_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/net/zoo.h"
#include "src/quant/plan.h"

namespace octet::test {
namespace {

// Where costs add up, no combination of all lies below a step: fewer error at no more cost.
TEST(BitSearch, NoCombinationIsBetterThanAStep) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 30; ++trial) {
    constexpr int kChoices = 5, kCandidates = 3;
    std::vector<BitChoice> choices(kChoices);
    std::vector<double> sizes;
    for (BitChoice& choice : choices) {
      choice.noise = {0};
      for (int level = 1; level < kCandidates; ++level)
        choice.noise.push_back(choice.noise.back() + 1e-3 * static_cast<double>(1 + random() % 1000));
      sizes.push_back(static_cast<double>(10 + random() % 500));
    }
    const double bits[kCandidates] = {8, 4, 3};
    const auto cost = [&](const BitLevels& levels) {
      double sum = 0;
      for (int c = 0; c < kChoices; ++c) sum += sizes[c] * bits[levels[c]];
      return sum;
    };
    const auto noise_of = [&](const BitLevels& levels) {
      double noise = 0;
      for (int c = 0; c < kChoices; ++c) noise += choices[c].noise[levels[c]];
      return noise;
    };
    const std::vector<BitStep> steps = bit_steps(choices, cost);
    for (const BitStep& step : steps) EXPECT_NEAR(step.noise, noise_of(step.levels), 1e-12) << "trial " << trial;
    EXPECT_EQ(steps.front().levels, BitLevels(kChoices, 0));
    EXPECT_EQ(steps.back().levels, BitLevels(kChoices, kCandidates - 1));
    for (int combination = 0; combination < static_cast<int>(std::pow(kCandidates, kChoices)); ++combination) {
      BitLevels levels;
      for (int c = 0, rest = combination; c < kChoices; ++c, rest /= kCandidates) levels.push_back(rest % kCandidates);
      const double noise = noise_of(levels);
      for (const BitStep& step : steps)
        EXPECT_FALSE(noise < step.noise - 1e-12 && cost(levels) <= step.cost)
            << "trial " << trial << ": combination " << combination << " beats a step of cost " << step.cost;
    }
  }
}

TEST(BitSearch, AChoiceThatSavesNothingIsNotTaken) {
  const std::vector<BitChoice> choices = {{.node = 1, .noise = {0, 0.5}}, {.node = 2, .noise = {0, 0}}};
  const std::vector<BitStep> steps = bit_steps(choices, [](const BitLevels& levels) { return 10.0 - 4 * levels[0]; });
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].levels, (BitLevels{1, 0}));
  EXPECT_DOUBLE_EQ(steps[1].noise, 0.5);
  EXPECT_DOUBLE_EQ(steps[1].cost, 6);
}

TEST(BitSearch, TheLastStepThatKeepsIsFoundByHalving) {
  std::vector<size_t> asked;
  const auto found = [&](size_t kept, size_t lost, size_t last) {
    asked.clear();
    return last_that_keeps(kept, lost, [&](size_t step) {
      asked.push_back(step);
      return step <= last;
    });
  };
  for (size_t last = 3; last < 20; ++last) EXPECT_EQ(found(3, 20, last), last);
  EXPECT_EQ(found(2, 5, 2), 2u);
  EXPECT_EQ(asked, std::vector<size_t>{3});  // of 3 and 4 the one of more bits: nothing else is left to measure
  EXPECT_EQ(found(0, 8, 5), 5u);
  EXPECT_EQ(asked, (std::vector<size_t>{4, 6, 5}));
  EXPECT_EQ(found(7, 8, 7), 7u);
  EXPECT_TRUE(asked.empty());
}

class BitSearchOfResNet20 : public ::testing::Test {
 protected:
  const Graph fused_ = fuse(build_model({.name = "resnet20", .shortcut = 'A'}));
  std::vector<std::string> names(const std::vector<BitChoice>& choices, BitChoice::What what) const {
    std::vector<std::string> names;
    for (const BitChoice& choice : choices)
      if (choice.what == what) names.push_back(fused_.nodes[choice.node].name);
    return names;
  }
};

// First, last and image have bits of their own, and so has what quant.layers names.
TEST_F(BitSearchOfResNet20, PinnedLayersAreNoChoice) {
  const std::vector<BitChoice> weights = bit_choices(fused_, {}, false);
  EXPECT_EQ(weights.size(), 18u);  // of 20 layers
  for (const std::string& name : names(weights, BitChoice::What::weights))
    EXPECT_FALSE(name == "conv1" || name == "linear");
  const std::vector<BitChoice> pinned =
      bit_choices(fused_, {.layers = {{.match = "layer2.*", .weight_bits = 6}}}, true);
  EXPECT_EQ(names(pinned, BitChoice::What::weights).size(), 12u);
  EXPECT_FALSE(names(pinned, BitChoice::What::edge).empty());
  EXPECT_TRUE(names(weights, BitChoice::What::edge).empty());
}

TEST_F(BitSearchOfResNet20, CostsAreThoseOfTheWholeNetwork) {
  const QuantSpec spec;
  const std::vector<BitChoice> choices = bit_choices(fused_, spec, true);
  const BitCosts costs(fused_, spec, choices, {8, 4});
  const BitCost eight = costs(BitLevels(choices.size(), 0));
  EXPECT_DOUBLE_EQ(eight.weight_bits, 8);
  EXPECT_DOUBLE_EQ(eight.weight_bytes, 268'336);  // 0.27 M: He et al., "Deep residual learning", table 6
  EXPECT_DOUBLE_EQ(eight.bit_operations, 64.0 * static_cast<double>(multiply_adds(fused_)));
  const BitCost four = costs(BitLevels(choices.size(), 1));
  EXPECT_DOUBLE_EQ(four.weight_bytes, 432 + 640 + (268'336 - 432 - 640) / 2.0);  // first and last layer keep theirs
  EXPECT_LT(four.bit_operations, 0.3 * eight.bit_operations);
  EXPECT_GT(four.bit_operations, 0.25 * eight.bit_operations);
}

/// A choice that was taken back costs what the spec says, though its node still stands behind the end of the list.
TEST_F(BitSearchOfResNet20, WhatIsNoLongerAChoiceHasTheBitsOfTheSpec) {
  std::vector<BitChoice> choices = bit_choices(fused_, {}, false);
  const Node last = fused_.nodes[choices.back().node];
  const double weights = static_cast<double>(last.out_channels) * last.out_channels * 9;  // 3x3, as many inputs
  BitLevels levels(choices.size(), 1);
  const double all = BitCosts(fused_, {}, choices, {8, 4})(levels).weight_bytes;
  choices.pop_back();
  levels.pop_back();
  EXPECT_DOUBLE_EQ(BitCosts(fused_, {}, choices, {8, 4})(levels).weight_bytes, all + weights / 2);
}

TEST_F(BitSearchOfResNet20, APlanIsWrittenByLayer) {
  const std::vector<BitChoice> choices = {{.node = 2, .what = BitChoice::What::weights},
                                          {.node = 2, .what = BitChoice::What::edge},
                                          {.node = 3},
                                          {.node = 4}};
  const std::vector<LayerBits> layers = layers_of(fused_, choices, {1, 2, 0, 2}, {8, 4, 3});
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].match, fused_.nodes[2].name);
  EXPECT_EQ(layers[0].weight_bits, 4);
  EXPECT_EQ(layers[0].activation_bits, 3);
  EXPECT_EQ(layers[1].match, fused_.nodes[4].name);
  EXPECT_EQ(layers[1].weight_bits, 3);
  EXPECT_EQ(layers[1].activation_bits, 0);
}

}  // namespace
}  // namespace octet::test
