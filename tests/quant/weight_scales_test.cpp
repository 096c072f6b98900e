// SPDX-License-Identifier: Apache-2.0
#include "src/quant/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/quant/weight_scales.h"
#include "tests/quant/values.h"

namespace octet {
namespace {

using test::error_of, test::normal_values;

TEST(WeightScales, MaximumOfEachChannelOrOfAll) {
  const std::vector<float> weight{1, -2.54f, 0, 0, 0.5f, -0.25f};
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {}), (std::vector<float>{2.54f / 127, 1.0f / 127, 0.5f / 127}));
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {.granularity = Granularity::per_tensor}),
            std::vector<float>(3, 2.54f / 127));
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {{-1, 1}}), (std::vector<float>{2.54f, 1.0f, 0.5f}));
  const std::vector<float> bad{1, NAN};
  EXPECT_THROW(weight_scales(bad.data(), 1, 2, {}), Error);
}

TEST(WeightScales, OnlyMinmaxSearchesForNothing) {
  EXPECT_FALSE(least_squares(WeightCalibrator::minmax));
  EXPECT_TRUE(least_squares(WeightCalibrator::mse));
  EXPECT_TRUE(least_squares(WeightCalibrator::lsq)) << "learned scales begin as mse gives them, on every device";
}

/// Codes [-2, 1] and [-8, 7]: the end that needs the wider step decides.
TEST(WeightScales, OfCodesThatReachFurtherBelow) {
  const std::vector<float> weight{1, -2.54f, 0, 0, 0.5f, -0.25f};
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {{-2, 1}}), (std::vector<float>{2.54f / 2, 1.0f, 0.5f}));
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {{-8, 7}}), (std::vector<float>{2.54f / 8, 1.0f / 7, 0.5f / 7}));
  EXPECT_EQ(weight_scales(weight.data(), 3, 2, {{-2, 1}, Granularity::per_tensor}), std::vector<float>(3, 2.54f / 2));
}

TEST(WeightScales, MseIsNeverWorseThanTheMaximumAndMuchBetterForFewBits) {
  const auto weight = normal_values(4 * 576, 0, 0.05f, 14);
  for (int bits = 2; bits <= 8; ++bits) {
    const int highest = (1 << (bits - 1)) - 1;
    for (const int lowest : {-highest, std::max(-127, -highest - 1)}) {
      const WeightCodes codes{static_cast<int8_t>(lowest), static_cast<int8_t>(highest)};
      const auto wide = weight_scales(weight.data(), 4, 576, {codes}),
                 best = weight_scales_mse(weight.data(), 4, 576, {codes});
      for (size_t k = 0; k < 4; ++k) {
        const std::vector<float> row(weight.begin() + k * 576, weight.begin() + (k + 1) * 576);
        const double wide_error = error_of(row, {wide[k], 0, lowest, highest});
        const double best_error = error_of(row, {best[k], 0, lowest, highest});
        EXPECT_LE(best_error, wide_error);
        if (bits <= 4) {
          EXPECT_LT(best_error, 0.8 * wide_error) << lowest << ".." << highest;
        }
      }
    }
  }
}

/// No scale near the found one is better, not even within one of the search's coarse steps of 4 %.
TEST(WeightScales, MseSearchesFinely) {
  constexpr size_t kRow = 72;
  const auto weight = normal_values(50 * kRow, 0, 0.05f, 15);
  for (const int bits : {3, 4, 8}) {
    const WeightCodes codes = weight_codes(bits, WeightRange::symmetric);
    const auto widest = weight_scales(weight.data(), 50, kRow, {codes});
    const auto best = weight_scales_mse(weight.data(), 50, kRow, {codes});
    for (size_t k = 0; k < best.size(); ++k) {
      const std::vector<float> row(weight.begin() + k * kRow, weight.begin() + (k + 1) * kRow);
      const double found = error_of(row, codes.qparams(best[k]));
      for (double offset = -0.03; offset < 0.0325; offset += 0.005) {
        const double scale = best[k] + offset * widest[k];
        if (scale > widest[k]) continue;
        EXPECT_LE(found, error_of(row, codes.qparams(static_cast<float>(scale))) * (1 + 1e-5))
            << "bits " << bits << " row " << k << " offset " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace octet
