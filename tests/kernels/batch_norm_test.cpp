// SPDX-License-Identifier: Apache-2.0
// The gradient at BatchNorm's input, value by value as its kernel computes it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/training/batch_norm.h"

namespace octet::kernels::batch_norm {
namespace {

/// A channel far from zero, of which a float keeps the mean exactly: what is lost is the formula's.
TEST(BatchNormInputGradient, KeepsItsDigitsWhereTheMeanIsLarge) {
  constexpr float kMean = 4096, kWeight = 1.5f;
  std::vector<float> x, dy;
  for (int i = 0; i < 64; ++i) {
    const float distance = static_cast<float>(1 + i % 7) / 64;
    x.insert(x.end(), {kMean + distance, kMean - distance});
    dy.insert(dy.end(), {std::sin(static_cast<float>(i)) + 0.25f, 0.5f * std::cos(static_cast<float>(3 * i))});
  }
  double mean_dy = 0, mean_product = 0, variance = 0;
  const auto count = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double centred = static_cast<double>(x[i]) - kMean;
    mean_dy += dy[i] / count;
    mean_product += dy[i] * centred / count;
    variance += centred * centred / count;
  }
  const double factor = 1 / std::sqrt(variance + 1e-5);
  const InputGradient gradient(static_cast<float>(mean_dy), static_cast<float>(mean_product), kMean,
                               static_cast<float>(factor), kWeight);
  for (size_t i = 0; i < x.size(); ++i) {
    const double centred = static_cast<double>(x[i]) - kMean;
    const double want = kWeight * factor * (dy[i] - mean_dy - centred * factor * factor * mean_product);
    EXPECT_NEAR(gradient(dy[i], x[i]), want, 1e-6 * kWeight * factor) << i;
  }
}

}  // namespace
}  // namespace octet::kernels::batch_norm
