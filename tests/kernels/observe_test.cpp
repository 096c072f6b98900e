// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/observe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace octet::kernels {
namespace {

std::vector<float> normal_values(size_t count) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0.5f, 3);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

TEST(FindRange, FindsBothEndsWhereverTheyAre) {
  for (const size_t count : {1u, 2u, 15u, 16u, 17u, 100u, 1000u}) {
    std::vector<float> values = normal_values(count);
    for (size_t at = 0; at < count; at += 7) {
      std::vector<float> x = values;
      x[at] = at % 2 == 0 ? 50.0f : -50.0f;
      const ValueRange range = find_range(x.data(), count);
      EXPECT_TRUE(range.finite);
      EXPECT_EQ(range.lo, *std::min_element(x.begin(), x.end()));
      EXPECT_EQ(range.hi, *std::max_element(x.begin(), x.end()));
    }
  }
}

TEST(FindRange, SeesEveryNonFiniteValue) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (size_t at = 0; at < 50; ++at) {
      std::vector<float> values = normal_values(50);
      values[at] = bad;
      EXPECT_FALSE(find_range(values.data(), values.size()).finite) << bad << " at " << at;
    }
  }
  const std::vector<float> large{3e38f, -3e38f};
  EXPECT_TRUE(find_range(large.data(), 2).finite);
}

TEST(AddToHistogram, EdgesBelongToTheBinAbove) {
  const std::vector<float> x{-1.0f, -0.75f, -0.5f, -1e-30f, 0.0f, 0.49f, 0.5f, 0.5f};
  std::vector<double> counts(4, 10.0);
  add_to_histogram(x.data(), x.size(), {0.5f, -2, 4}, counts.data());
  EXPECT_EQ(counts, (std::vector<double>{12, 12, 12, 12}));
}

TEST(AddToHistogram, EqualsTheFormulaOverManyBlocks) {
  const std::vector<float> x = normal_values(5003);
  const Bins bins{0.03125f, -1024, 2048};
  std::vector<double> counts(2048), expected(2048);
  for (const float value : x) ++expected[static_cast<size_t>(std::floor(value / 0.03125) + 1024)];
  add_to_histogram(x.data(), 3000, bins, counts.data());
  add_to_histogram(x.data() + 3000, 2003, bins, counts.data());
  EXPECT_EQ(counts, expected);
}

/// Scales anywhere within and at the ends of a power of two, and far from one.
std::vector<float> scales() {
  std::mt19937 engine(11);
  std::vector<float> result{1.0f, std::nextafter(1.0f, 2.0f), std::nextafter(2.0f, 1.0f), kSmallestScale, 3e27f};
  for (int i = 0; i < 200; ++i) {
    const float mantissa = 1 + static_cast<float>(engine() >> 9) * 0x1p-23f;
    result.push_back(std::ldexp(mantissa, static_cast<int>(engine() % 90) - 63));
  }
  return result;
}

TEST(RunningRange, OfCalibratedQParamsGivesThemBackInEveryBit) {
  for (int bits = 2; bits <= 8; ++bits) {
    const int codes = 1 << bits;
    for (const float scale : scales()) {
      const auto expect_back = [&](const QParams& q, bool affine) {
        const RunningRange range = range_of_qparams(q, affine);
        ASSERT_EQ(range.seen, kManyBatches);
        ASSERT_EQ(qparams_of_range(range.lo, range.hi, {1, 0, q.quant_min, q.quant_max}, affine), q)
            << "bits " << bits << " scale " << scale << " zero point " << q.zero_point;
      };
      expect_back({scale, 0, -codes / 2, codes / 2 - 1}, false);
      expect_back({scale, 0, 0, codes - 1}, false);
      for (int zero_point = 0; zero_point < codes; ++zero_point) expect_back({scale, zero_point, 0, codes - 1}, true);
    }
  }
}

/// A batch that reaches exactly as far changes nothing either.
TEST(RunningRange, StaysWhereABatchEndsAtItsEnds) {
  const QParams q{0.25f, 100, 0, 255};
  const RunningRange start = range_of_qparams(q, true);
  for (const double averaging : {0.0, 0.01, 1.0}) {
    const RunningRange range = follow(start, {-25.0f, 38.75f}, averaging);
    EXPECT_EQ(range.lo, start.lo);
    EXPECT_EQ(range.hi, start.hi);
  }
}

TEST(LimitedRange, ReachesTwiceAsFarAsTheRunningRangeAtMost) {
  const auto limited = [](double lo, double hi, const ValueRange& batch, double averaging = 0.01) {
    const ValueRange r = limited_range({lo, hi, 7}, batch, averaging);
    return std::pair(r.lo, r.hi);
  };
  EXPECT_EQ(limited(-1, 4, {-20, 6}), std::pair(-8.0f, 6.0f));
  EXPECT_EQ(limited(-4, 1, {-3, 800}), std::pair(-3.0f, 8.0f));
  EXPECT_EQ(limited(0, 4, {0, 8}), std::pair(0.0f, 8.0f));
  EXPECT_EQ(limited(0.1, 0.25, {4, 5}), std::pair(0.5f, 0.5f));  // away from zero
  EXPECT_EQ(limited(-0.25, 0.1, {-5, -4}), std::pair(-0.5f, -0.5f));
  EXPECT_EQ(limited(-1, 4, {-20, 60}, 0), std::pair(-20.0f, 60.0f));  // min and max of all
  EXPECT_EQ(limited(0, 0, {-20, 60}), std::pair(-20.0f, 60.0f));      // zeros so far
  const ValueRange first = limited_range({}, {-20, 60}, 0.01);
  EXPECT_EQ(first.lo, -20);
  EXPECT_EQ(first.hi, 60);
}

/// One batch in eight reaches a thousand times as far: the mean of the maxima would be 126.
TEST(LimitedRange, OutliersHardlyWidenAMovingAverageAndGrowthIsFollowed) {
  const double averaging = 0.01;
  RunningRange range = range_of_qparams({1.0f / 255, 0, 0, 255}, true);
  const auto take = [&](float hi) { range = follow(range, limited_range(range, {0, hi}, averaging), averaging); };
  for (int batch = 0; batch < 4000; ++batch) take(batch % 8 == 0 ? 1000.0f : 1.0f);
  EXPECT_GT(range.hi, 1.1);
  EXPECT_LT(range.hi, 1.25);
  for (int batch = 0; batch < 1000; ++batch) take(10);
  EXPECT_NEAR(range.hi, 10, 0.01);
}

}  // namespace
}  // namespace octet::kernels
