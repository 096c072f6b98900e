// SPDX-License-Identifier: Apache-2.0
// What norm_quantize.h is compared with, BatchNorm with its gradients in double, and the quotient that its kernel
// rounds.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/training/fake_quantize.h"
#include "tests/kernels/plain_norm.h"

namespace octet::kernels {
namespace {

using Doubles = std::vector<double>;

/// Two channels of four rows. The first has mean 2 and variance 5, the second is constant.
TEST(PlainNorm, WorkedByHand) {
  const Doubles x{-1, 7, 1, 7, 3, 7, 5, 7}, weight{2, 3}, bias{0.5, -1}, residual{0, 1, 0, 1, 0, 1, 10, 1};
  const PlainNorm norm{4, 2, 4, weight.data(), bias.data()};  // epsilon 4: 1 / sqrt(5 + 4) is a third
  Doubles moments(4), sum(8);
  plain_norm_moments(norm, x.data(), moments.data());
  EXPECT_EQ(moments, (Doubles{2, 7, 5, 0}));
  plain_norm_sum(norm, x.data(), moments.data(), residual.data(), sum.data());
  const Doubles want{-1.5, 0, -1 / 6., 0, 7 / 6., 0, 12.5, 0};
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], want[i], 1e-14) << i;
}

/// The loss that the next test derives: a weighted sum of all values, which also depends on their squares.
double loss_of(const PlainNorm& norm, const Doubles& x, const Doubles& slopes) {
  Doubles moments(2 * norm.channels), sum(x.size());
  plain_norm_moments(norm, x.data(), moments.data());
  plain_norm_sum(norm, x.data(), moments.data(), nullptr, sum.data());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) loss += slopes[i] * sum[i] + sum[i] * sum[i];
  return loss;
}

TEST(PlainNorm, GradientsAreThoseOfDifferences) {
  constexpr long kRows = 7;
  constexpr int kChannels = 3;
  constexpr double kStep = 1e-5;
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 1);
  Doubles x(kRows * kChannels), slopes(x.size()), weight(kChannels), bias(kChannels);
  for (Doubles* values : {&x, &slopes, &weight, &bias})
    for (double& value : *values) value = normal(random);
  const PlainNorm norm{kRows, kChannels, 1e-3, weight.data(), bias.data()};
  Doubles moments(2 * kChannels), sum(x.size()), dsum(x.size()), dx(x.size()), dweight(kChannels), dbias(kChannels);
  plain_norm_moments(norm, x.data(), moments.data());
  plain_norm_sum(norm, x.data(), moments.data(), nullptr, sum.data());
  for (size_t i = 0; i < x.size(); ++i) dsum[i] = slopes[i] + 2 * sum[i];
  plain_norm_gradients(norm, x.data(), moments.data(), dsum.data(), {dx.data(), dweight.data(), dbias.data()});
  const auto compare = [&](Doubles& values, const Doubles& gradients) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = loss_of(norm, x, slopes);
      values[i] = value - kStep;
      const double below = loss_of(norm, x, slopes);
      values[i] = value;
      EXPECT_NEAR(gradients[i], (above - below) / (2 * kStep), 1e-7) << i;
    }
  };
  compare(x, dx);
  compare(weight, dweight);
  compare(bias, dbias);
}

/// Next to every place where a code of 8 bits ends, for scales of all mantissas and magnitudes.
TEST(RoundedQuotient, CorrectedRoundsAsDivisionDoes) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> mantissa(1, 2);
  std::uniform_int_distribution<int> exponent(-64, 90);
  for (int repeat = 0; repeat < 4000; ++repeat) {
    const float scale = repeat == 0 ? 0x1p-64f : std::ldexp(mantissa(random), exponent(random));
    const RoundedQuotient quotient(scale);
    for (int half = -513; half <= 513; half += repeat % 7 + 1) {
      float x = scale * (0.5f * static_cast<float>(half));
      for (int step = 0; step < 4; ++step) x = std::nextafter(x, -INFINITY);
      for (int step = 0; step < 9; ++step, x = std::nextafter(x, INFINITY))
        ASSERT_EQ(std::rint(quotient.corrected(x, x * quotient.inverse)), quotient.exact(x)) << x << " / " << scale;
    }
  }
}

}  // namespace
}  // namespace octet::kernels
