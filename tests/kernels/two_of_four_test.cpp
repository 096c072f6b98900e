// SPDX-License-Identifier: Apache-2.0
// Which two of four weights stay, in every layout, against a sort.
#include "kernels/training/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace octet::kernels {
namespace {

/// Places that stay, by a stable sort of magnitudes.
std::vector<bool> kept_of(const std::vector<float>& group) {
  std::vector<int> order(4);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return std::fabs(group[a]) > std::fabs(group[b]); });
  std::vector<bool> kept(4);
  kept[order[0]] = kept[order[1]] = true;
  return kept;
}

TEST(TwoOfFour, TheTwoLargestOfEveryGroupInEveryLayout) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> few(-3, 3);  // many of equal magnitude
  for (const int taps : {1, 2, 9}) {
    for (const bool channels_last : {false, true}) {
      const int channels = 5, inputs = 12, count = channels * inputs * taps;
      std::vector<float> weight, to(count, -9.0f), gradient(count, 0.5f);
      for (int i = 0; i < count; ++i) weight.push_back(static_cast<float>(few(random)) / 3);
      const auto at = [&](int k, int c, int t) {
        return k * inputs * taps + (channels_last ? t * inputs + c : c * taps + t);
      };
      SparseWeights work{weight.data(), to.data(), channels, inputs, taps, channels_last};
      EXPECT_EQ(work.groups(), inputs / 4 * taps);
      for (int k = 0; k < channels; ++k)
        for (int g = 0; g < work.groups(); ++g) keep_two_of_four(work, k, g);
      work.to = gradient.data();
      for (int k = 0; k < channels; ++k)
        for (int g = 0; g < work.groups(); ++g) decay_pruned(work, k, g, 0.25f);
      for (int k = 0; k < channels; ++k) {
        for (int t = 0; t < taps; ++t) {
          for (int c = 0; c < inputs; c += 4) {
            std::vector<float> group;
            for (int i = 0; i < 4; ++i) group.push_back(weight[at(k, c + i, t)]);
            const std::vector<bool> kept = kept_of(group);
            for (int i = 0; i < 4; ++i) {
              const int place = at(k, c + i, t);
              EXPECT_EQ(to[place], kept[i] ? group[i] : 0) << taps << " " << channels_last << " " << c + i;
              EXPECT_FLOAT_EQ(gradient[place], kept[i] ? 0.5f : 0.5f + 0.25f * group[i]);
            }
          }
        }
      }
    }
  }
}

TEST(TwoOfFour, NothingThatIsNotFiniteIsHidden) {
  const float nan = std::nanf(""), inf = INFINITY;
  for (const std::vector<float>& weight : {std::vector<float>{1, nan, 2, 3}, {nan, nan, nan, 1}, {inf, inf, inf, 1}}) {
    std::vector<float> to(4);
    keep_two_of_four({weight.data(), to.data(), 1, 4, 1, false}, 0, 0);
    EXPECT_TRUE(std::any_of(to.begin(), to.end(), [](float x) { return !std::isfinite(x); }));
  }
}

TEST(TwoOfFour, TheFirstDenseGroupIsFound) {
  for (const int inputs : {4, 10, 11}) {  // the last group of a row: four, two, three
    const int rows = 3;
    std::vector<int8_t> weight(rows * inputs);
    EXPECT_EQ(first_dense_group(weight.data(), rows, inputs), -1);
    for (int row = rows - 1; row >= 0; --row) {
      for (int first = (inputs - 1) / 4 * 4; first >= 0; first -= 4) {
        int8_t* group = &weight[row * inputs + first];
        const int before = static_cast<int>(first_dense_group(weight.data(), rows, inputs));
        const int codes = std::min(4, inputs - first);
        for (int i = 0; i < codes; ++i) {
          group[i] = static_cast<int8_t>(i % 2 ? -128 : 1);
          EXPECT_EQ(first_dense_group(weight.data(), rows, inputs), i < 2 ? before : row * inputs + first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
