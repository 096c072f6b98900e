// SPDX-License-Identifier: Apache-2.0
// When weights are frozen, against the paper's definition over the whole history of their codes, in double.
#include "kernels/training/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

namespace octet::kernels {
namespace {

/// One channel of weights, which begin where they are.
struct Tracked {
  std::vector<float> weight, frequency, mean;
  std::vector<int8_t> code, direction;
  float scale;
  WeightCodes codes;

  Tracked(std::vector<float> weights, float s, WeightCodes c)
      : weight(std::move(weights)), frequency(weight.size()), direction(weight.size()), scale(s), codes(c) {
    for (const float w : weight) code.push_back(static_cast<int8_t>(quantize(w, codes.qparams(scale))));
    mean.assign(code.begin(), code.end());
  }
  void step(float threshold) {
    const OscillatingWeights work{.weight = weight.data(),
                                  .scale = &scale,
                                  .state = {code.data(), direction.data(), frequency.data(), mean.data()},
                                  .channels = 1,
                                  .per_channel = static_cast<int32_t>(weight.size()),
                                  .codes = codes};
    freeze_oscillating(work, 0, 1, threshold);
  }
};

/// The paper's f and mean code at the end of a history: o[t] looks back for the change before.
struct Paper {
  double frequency = 0, mean = 0;

  explicit Paper(const std::vector<int>& codes) : mean(codes[0]) {
    const double m = kOscillationMomentum;
    for (size_t t = 1; t < codes.size(); ++t) {
      const int change = codes[t] - codes[t - 1];
      std::optional<int> before;
      for (size_t u = t - 1; u >= 1 && !before; --u)
        if (codes[u] != codes[u - 1]) before = codes[u] - codes[u - 1];
      const bool oscillates = change != 0 && before && (change > 0) != (*before > 0);
      frequency = m * (oscillates ? 1 : 0) + (1 - m) * frequency;
      mean = m * codes[t] + (1 - m) * mean;
    }
  }
};

TEST(Oscillation, FrequencyAndMeanArePapersOverAnyHistory) {
  std::mt19937 random(3);
  int turns = 0;
  for (const WeightCodes codes : {WeightCodes{-1, 1}, WeightCodes{-8, 7}, WeightCodes{-127, 127}}) {
    Tracked tracked(std::vector<float>(64, 0.0f), 0.1f, codes);
    std::vector<std::vector<int>> history(64, {0});
    for (int t = 0; t < 200; ++t) {
      for (size_t i = 0; i < 64; ++i) {
        const float walk = static_cast<float>(static_cast<int>(random() % 5) - 2) * (i < 32 ? 0.03f : 0.2f);
        tracked.weight[i] += walk;
        history[i].push_back(quantize(tracked.weight[i], codes.qparams(0.1f)));
      }
      tracked.step(2.0f);  // no share is that large
    }
    for (size_t i = 0; i < 64; ++i) {
      const Paper paper(history[i]);
      EXPECT_NEAR(tracked.frequency[i], paper.frequency, 1e-5) << i;
      EXPECT_NEAR(tracked.mean[i], paper.mean, 1e-3) << i;
      EXPECT_EQ(tracked.code[i], history[i].back());
      EXPECT_NE(tracked.direction[i], kFrozen);
      turns += paper.frequency > 0.01;
    }
  }
  EXPECT_GT(turns, 60);
}

/// To and fro each step: the k-th turn brings f to 1 - 0.99^k. One that only rises, or rises and rests, never turns.
TEST(Oscillation, FreezesAtTheThresholdAndOnlyWhatTurns) {
  Tracked tracked({0.04f, -0.3f, 0.2f}, 0.1f, {-8, 7});
  int frozen_after = 0;
  for (int t = 1; t <= 40; ++t) {
    if (tracked.direction[0] != kFrozen) tracked.weight[0] = t % 2 == 1 ? 0.06f : 0.04f;  // codes 1, 0, 1, ...
    tracked.weight[1] += 0.02f;
    tracked.step(0.05f);
    if (frozen_after == 0 && tracked.direction[0] == kFrozen) frozen_after = t;
  }
  EXPECT_EQ(frozen_after, 7);     // six turns: 1 - 0.99^5 = 0.049, 1 - 0.99^6 = 0.0585
  EXPECT_EQ(tracked.code[0], 0);  // the mean began at 0
  EXPECT_EQ(tracked.weight[0], 0);
  EXPECT_EQ(tracked.frequency[1], 0);
  EXPECT_NE(tracked.direction[1], kFrozen);
  EXPECT_EQ(tracked.direction[2], 0);
  EXPECT_EQ(tracked.weight[2], 0.2f);
}

TEST(Oscillation, AFrozenCodeStaysWhereverWeightAndScaleGo) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> any(-2, 2), factor(0.7f, 1.4f);
  Tracked tracked(std::vector<float>(200, 0.0f), 0.1f, {-8, 7});
  for (size_t i = 0; i < 200; ++i) {
    tracked.weight[i] = any(random);
    tracked.mean[i] = any(random) * 6;
    tracked.frequency[i] = 1;
  }
  tracked.step(0.5f);
  std::vector<int8_t> codes = tracked.code;
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(tracked.direction[i], kFrozen);
    EXPECT_NEAR(codes[i], std::min(std::max(std::rint(tracked.mean[i]), -8.0f), 7.0f), 0) << tracked.mean[i];
  }
  for (int t = 0; t < 50; ++t) {
    for (float& w : tracked.weight) w += any(random);
    tracked.scale *= factor(random);
    tracked.step(0.5f);
    for (size_t i = 0; i < 200; ++i) {
      ASSERT_EQ(tracked.code[i], codes[i]);
      ASSERT_EQ(quantize(tracked.weight[i], tracked.codes.qparams(tracked.scale)), codes[i]);
    }
  }
}

}  // namespace
}  // namespace octet::kernels
