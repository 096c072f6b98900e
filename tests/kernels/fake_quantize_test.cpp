// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/fake_quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace octet::kernels {
namespace {

constexpr std::array kRanges = {QParams{0.05f, 0, -128, 127}, QParams{0.02f, 0, 0, 255}, QParams{0.03f, 113, 0, 255},
                                QParams{0.4f, 0, -2, 1},      QParams{1e-3f, 7, 0, 15},  QParams{3.0f, 255, 0, 255}};

float widen(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

/// Nearest bfloat16, ties to even, found by looking at both neighbours.
uint16_t narrow(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t down = static_cast<uint16_t>(bits >> 16), up = static_cast<uint16_t>(down + 1);
  const double below = std::fabs(static_cast<double>(x) - widen(down)),
               above = std::fabs(static_cast<double>(widen(up)) - x);
  if (below != above) return below < above ? down : up;
  return down % 2 == 0 ? down : up;
}

/// Random values, exact ties, both bounds and their neighbours, zeros, huge values, infinities and NaN.
std::vector<float> test_values(const QParams& q, size_t count) {
  std::mt19937 engine(17);
  std::normal_distribution<float> normal(0, 80 * q.scale);
  std::vector<float> values;
  for (int code = q.quant_min - 3; code <= q.quant_max + 3; ++code) {
    values.push_back(q.scale * static_cast<float>(code - q.zero_point));
    values.push_back(q.scale * (static_cast<float>(code - q.zero_point) + 0.5f));
    values.push_back(std::nextafter(values.back(), -1e30f));
  }
  values.insert(values.end(), {0.0f, -0.0f, -1e-20f, 1e38f, -1e38f, INFINITY, -INFINITY, NAN, 1e-42f});
  while (values.size() < count) values.push_back(normal(engine));
  return values;
}

struct Expected {
  float y;
  uint8_t mask;
};

/// By quantize.h alone.
Expected expected(float x, const QParams& q) {
  const float code = std::rint(x / q.scale) + static_cast<float>(q.zero_point);
  const bool inside = code >= static_cast<float>(q.quant_min) && code <= static_cast<float>(q.quant_max);
  return {dequantize(quantize(x, q), q), static_cast<uint8_t>(inside)};
}

TEST(FakeQuantize, FloatEqualsTheRuleInEveryBit) {
  for (const QParams& q : kRanges) {
    for (const size_t count : {1u, 7u, 16u, 1000u, 4099u}) {
      const std::vector<float> x = test_values(q, count);
      std::vector<float> y(x.size(), -1), y_without_mask(x.size(), -1);
      std::vector<uint8_t> mask(x.size(), 2);
      fake_quantize(x.data(), x.size(), q, y.data(), mask.data());
      fake_quantize(x.data(), x.size(), q, y_without_mask.data(), nullptr);
      for (size_t i = 0; i < x.size(); ++i) {
        const Expected e = expected(x[i], q);
        EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(e.y)) << x[i];
        EXPECT_EQ(mask[i], e.mask) << x[i];
      }
      EXPECT_EQ(std::memcmp(y.data(), y_without_mask.data(), 4 * y.size()), 0);
      std::vector<float> in_place = x;
      fake_quantize(in_place.data(), x.size(), q, in_place.data(), mask.data());
      EXPECT_EQ(std::memcmp(y.data(), in_place.data(), 4 * y.size()), 0);
    }
  }
}

TEST(FakeQuantize, Bfloat16EqualsTheRuleOnEveryValue) {
  for (const QParams& q : kRanges) {
    std::vector<uint16_t> x(1 << 16), y(x.size());
    std::vector<uint8_t> mask(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
    fake_quantize(x.data(), x.size(), q, y.data(), mask.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const Expected e = expected(widen(x[i]), q);
      ASSERT_EQ(y[i], narrow(e.y)) << widen(x[i]);
      ASSERT_EQ(mask[i], e.mask) << widen(x[i]);
    }
  }
}

/// Ties, their neighbours and everything between: where the estimate calls itself sure, it is right.
TEST(RoundedQuotient, EqualsDivisionAndRounding) {
  std::mt19937 engine(4);
  std::uniform_real_distribution<float> steps(-300, 300), exponent(-60, 90);
  long unsure = 0, count = 0;
  for (int round = 0; round < 2000; ++round) {
    const float scale = std::exp2(exponent(engine));
    const RoundedQuotient quotient(scale);
    for (int i = 0; i < 500; ++i) {
      float x = scale * steps(engine);
      if (i % 2 == 0) x = scale * (std::floor(x / scale) + 0.5f);  // a tie, up to rounding
      if (i % 4 == 0) x = std::nextafter(x, i % 8 == 0 ? 1e38f : -1e38f);
      bool sure = true;
      const float rounded = quotient.estimate(x, sure);
      if (sure) {
        ASSERT_EQ(rounded, std::rint(x / scale)) << x << " / " << scale;
      }
      ASSERT_EQ(quotient(x), std::rint(x / scale)) << x << " / " << scale;
      unsure += i % 2 != 0 && !sure;
      count += i % 2 != 0;
    }
  }
  EXPECT_LT(unsure, count / 1000);
  for (const float scale : {1e-44f, 0x1p-64f, 1.0f, 0x1p-126f, 0x1p100f, 3e38f}) {
    const RoundedQuotient quotient(scale);
    for (const float x : {0.0f, 1e-45f, -3e-39f, 1.0f, 5e6f, -1e9f, 1e38f, -3.4e38f, INFINITY, -INFINITY})
      EXPECT_EQ(quotient(x), std::rint(x / scale)) << x << " / " << scale;
    EXPECT_TRUE(std::isnan(quotient(NAN)));
  }
}

TEST(FakeQuantize, PerChannelIsPerTensorRowByRow) {
  const std::vector<float> scale{0.01f, 0.5f, 0.07f};
  for (const size_t inner : {1u, 5u, 64u}) {
    const ChannelQuantization q{scale.data(), 3, inner, {1, 0, -127, 127}};
    const size_t rows = 4 * 3, size = rows * inner;
    std::vector<float> x = test_values({0.05f, 0, -127, 127}, 2000), y(size, 99.0f);
    std::vector<uint8_t> mask(size, 9);
    fake_quantize(x.data(), q, {2, 11}, y.data(), mask.data());
    std::vector<uint16_t> half(size), half_y(size, 77);
    for (size_t i = 0; i < size; ++i)
      half[i] = std::isnan(x[i]) ? 0 : static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
    fake_quantize(half.data(), q, {2, 11}, half_y.data(), nullptr);
    for (size_t i = 0; i < size; ++i) {
      const size_t row = i / inner;
      if (row < 2 || row >= 11) {  // another thread's
        EXPECT_EQ(y[i], 99.0f);
        EXPECT_EQ(mask[i], 9);
        EXPECT_EQ(half_y[i], 77);
        continue;
      }
      const QParams channel{scale[row % 3], 0, -127, 127};
      EXPECT_EQ(y[i], expected(x[i], channel).y);
      EXPECT_EQ(mask[i], expected(x[i], channel).mask);
      EXPECT_EQ(half_y[i], narrow(expected(widen(half[i]), channel).y));
    }
  }
}

/// The code before the clamp, from the exact quotient: 64 bits of mantissa hold it well enough to be rounded to float
/// as IEEE division rounds it, and the tie goes to the even side by hand.
long unclamped_code(float x, const QParams& q) {
  const float quotient = static_cast<float>(static_cast<long double>(x) / static_cast<long double>(q.scale));
  const double below = std::floor(static_cast<double>(quotient)), part = quotient - below;
  const long down = static_cast<long>(below);
  return q.zero_point + (part > 0.5 || (part == 0.5 && down % 2 != 0) ? down + 1 : down);
}

/// Values around both ends of the codes, float by float: the last that passes, the first that is clipped.
std::vector<float> around_the_clip_edges(const QParams& q) {
  std::vector<float> values;
  for (const double edge : {q.quant_min - q.zero_point - 0.5, q.quant_max - q.zero_point + 0.5}) {
    float x = static_cast<float>(q.scale * edge);
    for (int i = 0; i < 40; ++i) x = std::nextafter(x, -1e30f);
    for (int i = 0; i < 80; ++i, x = std::nextafter(x, 1e30f)) values.push_back(x);
  }
  return values;
}

constexpr float kOddScales[] = {0.0371f, 0.1f, 1.0f / 3, 3.3e-3f, 0.7f, 1.7f, 5.1e-6f, 41.9f};

/// Scales that are no powers of two: there a product with 1 / scale, or bounds in reals, would differ.
TEST(FakeQuantize, ClipEdgesOfOddScales) {
  constexpr QParams kCodes[] = {{1, 0, -128, 127}, {1, 0, 0, 255}, {1, 113, 0, 255}, {1, 0, -2, 1},
                                {1, 2, 0, 3},      {1, 0, -1, 1},  {1, 0, -8, 7},    {1, 9, 0, 15}};
  for (const float scale : kOddScales) {
    for (QParams q : kCodes) {
      q.scale = scale;
      const std::vector<float> x = around_the_clip_edges(q);
      std::vector<float> y(x.size()), dx(x.size()), dy(x.size(), 3.0f);
      std::vector<uint8_t> mask(x.size());
      fake_quantize(x.data(), x.size(), q, y.data(), mask.data());
      fake_quantize_backward(dy.data(), mask.data(), x.size(), dx.data());
      size_t passed = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const long code = unclamped_code(x[i], q);
        const bool passes = code >= q.quant_min && code <= q.quant_max;
        const long clamped = std::clamp<long>(code, q.quant_min, q.quant_max);
        EXPECT_EQ(y[i], scale * static_cast<float>(clamped - q.zero_point)) << x[i] << " / " << scale;
        EXPECT_EQ(dx[i], passes ? 3.0f : 0.0f) << x[i] << " / " << scale;
        passed += passes;
      }
      EXPECT_GT(passed, x.size() / 4);
      EXPECT_LT(passed, 3 * x.size() / 4);
    }
  }
}

TEST(FakeQuantize, ClipEdgesOfOddScalesPerChannel) {
  for (const QParams& range : {QParams{1, 0, -127, 127}, QParams{1, 0, -7, 7}, QParams{1, 0, -2, 1}}) {
    const size_t channels = std::size(kOddScales), inner = 160;
    std::vector<float> x;
    for (const float scale : kOddScales) {
      const std::vector<float> row = around_the_clip_edges({scale, 0, range.quant_min, range.quant_max});
      x.insert(x.end(), row.begin(), row.end());
    }
    ASSERT_EQ(x.size(), channels * inner);
    std::vector<float> y(x.size());
    std::vector<uint8_t> mask(x.size());
    fake_quantize(x.data(), ChannelQuantization{kOddScales, channels, inner, range}, {0, channels}, y.data(),
                  mask.data());
    for (size_t i = 0; i < x.size(); ++i) {
      QParams q = range;
      q.scale = kOddScales[i / inner];
      const long code = unclamped_code(x[i], q);
      const long clamped = std::clamp<long>(code, q.quant_min, q.quant_max);
      EXPECT_EQ(y[i], q.scale * static_cast<float>(clamped)) << x[i] << " / " << q.scale;
      EXPECT_EQ(mask[i], code == clamped ? 1 : 0) << x[i] << " / " << q.scale;
    }
  }
}

TEST(FakeQuantize, BackwardPassesTheMaskedGradient) {
  std::vector<float> dy, dx;
  std::vector<uint16_t> dy16;
  std::vector<uint8_t> mask;
  for (int i = 0; i < 1003; ++i) {
    dy.push_back(static_cast<float>(i) - 500.5f);
    dy16.push_back(static_cast<uint16_t>(i * 61));
    mask.push_back(static_cast<uint8_t>(i % 3 == 0));
  }
  dy[1] = NAN;  // masked: gone
  dx.resize(dy.size());
  std::vector<uint16_t> dx16(dy.size());
  fake_quantize_backward(dy.data(), mask.data(), dy.size(), dx.data());
  fake_quantize_backward(dy16.data(), mask.data(), dy.size(), dx16.data());
  for (size_t i = 0; i < dy.size(); ++i) {
    EXPECT_EQ(dx[i], mask[i] != 0 ? dy[i] : 0.0f) << i;
    EXPECT_EQ(dx16[i], mask[i] != 0 ? dy16[i] : 0) << i;
  }
}

/// The straight-through estimator is the derivative of the clipped identity: between the outermost rounding points
/// finite differences of it give the mask.
TEST(FakeQuantize, MaskIsTheSlopeOfTheClippedIdentity) {
  for (const QParams& q : kRanges) {
    const double lo = q.scale * (q.quant_min - q.zero_point - 0.5), hi = q.scale * (q.quant_max - q.zero_point + 0.5);
    const double step = q.scale * 1e-3;
    std::vector<float> x;
    for (int i = -40; i <= 340; ++i) x.push_back(q.scale * (static_cast<float>(i - q.zero_point) + 0.26f));
    std::vector<float> y(x.size()), dy(x.size(), 1.0f), dx(x.size());
    std::vector<uint8_t> mask(x.size());
    fake_quantize(x.data(), x.size(), q, y.data(), mask.data());
    fake_quantize_backward(dy.data(), mask.data(), x.size(), dx.data());
    const auto clipped = [&](double value) { return std::min(std::max(value, lo), hi); };
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(dx[i], (clipped(x[i] + step) - clipped(x[i] - step)) / (2 * step), 1e-6) << x[i];
    }
  }
}

TEST(FakeQuantize, SquaredErrorIsTheSumOverTheRule) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(1003);
  for (float& value : x) value = normal(engine);
  for (const size_t count : {0u, 5u, 16u, 1003u}) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const double error = static_cast<double>(expected(x[i], kRanges[0]).y) - x[i];
      sum += error * error;
    }
    EXPECT_NEAR(squared_error(x.data(), count, kRanges[0]), sum, 1e-12 * sum);
  }
}

}  // namespace
}  // namespace octet::kernels
