// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/qat_epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace octet::kernels {
namespace {

constexpr int kChannels = 37;  // no multiple of any vector's width
constexpr long kRows = 50;

template <class T>
std::vector<T> integers(int low, int high, size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> uniform(low, high);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(uniform(engine));
  return values;
}

std::vector<float> reals(float low, float high, size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(engine);
  return values;
}

/// clamp(rint(t) + zero point) - zero point, in double.
float rounded(float t, const Rounding& r) {
  const double code = std::nearbyint(static_cast<double>(t)) + r.zero_point;
  return static_cast<float>(std::fmin(std::fmax(code, r.lo), r.hi) - r.zero_point);
}

constexpr Rounding kRounding{.zero_point = 100, .lo = 3, .hi = 250};
constexpr Rounding kLogits{.float_output = true};

template <class Acc>
void check_rows(const Rounding& rounding, bool has_residual) {
  const std::vector<Acc> acc = integers<Acc>(-30000, 30000, kRows * kChannels, 1);
  const std::vector<float> residual = integers<float>(-100, 155, kRows * kChannels, 2);
  const std::vector<float> multiplier = reals(0, 0.01f, kChannels, 3), bias = reals(-9, 9, kChannels, 4);
  ChannelRule rule{kChannels, multiplier.data(), bias.data(), has_residual ? residual.data() : nullptr, 0.7f, rounding};
  std::vector<float> out(acc.size());
  requantize_rows(rule, acc.data(), kRows, out.data());
  for (size_t i = 0; i < acc.size(); ++i) {
    const size_t k = i % kChannels;
    float t = std::fma(static_cast<float>(acc[i]), multiplier[k], bias[k]);
    if (has_residual) t = std::fma(residual[i], 0.7f, t);
    ASSERT_EQ(out[i], rounding.float_output ? t : rounded(t, rounding))
        << "value " << i << (has_residual ? ", residual" : "") << (rounding.float_output ? ", logits" : "");
  }
}

TEST(RequantizeRows, EveryKindFollowsTheContract) {
  for (const Rounding& rounding : {kRounding, kLogits}) {
    for (const bool has_residual : {false, true}) {
      check_rows<float>(rounding, has_residual);
      check_rows<double>(rounding, has_residual);
    }
  }
}

TEST(RescaleCodes, FollowsTheContract) {
  const std::vector<float> x = integers<float>(-3000, 3000, 1001, 5);
  std::vector<float> out(x.size());
  for (const Rounding& rounding : {kRounding, kLogits}) {
    rescale_codes({0.085f, rounding}, x.data(), static_cast<long>(x.size()), out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float t = x[i] * 0.085f;
      ASSERT_EQ(out[i], rounding.float_output ? t : rounded(t, rounding)) << x[i];
    }
  }
}

TEST(AddCodes, FollowsTheContract) {
  const std::vector<float> a = integers<float>(-255, 255, 1001, 6), b = integers<float>(-255, 255, 1001, 7);
  std::vector<float> out(a.size());
  add_codes({0.5f, 0.75f, kRounding}, a.data(), b.data(), static_cast<long>(a.size()), out.data());
  for (size_t i = 0; i < a.size(); ++i)  // factors that meet halves often
    ASSERT_EQ(out[i], rounded(std::fma(b[i], 0.75f, a[i] * 0.5f), kRounding)) << a[i] << " and " << b[i];
}

/// 15 / 3 in float32 is 5 with a product rounded on its own, and a little more inside an fma.
TEST(AddCodes, TheSecondProductIsNotRounded) {
  const float a = -9, b = 15;
  float out = 0;
  add_codes({0.5f, 1.0f / 3, kRounding}, &a, &b, 1, &out);
  EXPECT_EQ(out, 1);
}

TEST(StoreCodes, SignedAndUnsignedBytes) {
  const std::vector<float> centred{-100, -1, 0, 1, 155};
  std::vector<uint8_t> out(centred.size());
  store_codes(100, centred.data(), 5, out.data());
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 99, 100, 101, 255}));
  store_codes(-28, centred.data(), 5, out.data());
  EXPECT_EQ(out, (std::vector<uint8_t>{128, 227, 228, 229, 127}));  // the bytes of -128, -29, -28, -27, 127
}

TEST(QuantizeValues, TheRuleOfTheWorkedNumbers) {
  const std::vector<float> x{1.25f, 1.75f, -9, 500, NAN};
  std::vector<uint8_t> out(x.size());
  quantize_values({0.5f, 3, 0, 255}, x.data(), 5, out.data());
  EXPECT_EQ(out, (std::vector<uint8_t>{5, 7, 0, 255, 0}));
}

}  // namespace
}  // namespace octet::kernels
