// SPDX-License-Identifier: Apache-2.0
// The table of a lookup: worked numbers, both kinds of codes on both sides, and the rule in double.
#include "src/quant/node_constants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace octet {
namespace {

constexpr CodeBounds kUnsigned{0, 255}, kSigned{-128, 127};

std::vector<uint8_t> lookup_table(const Function& function, const QParams& x, const QParams& y,
                                  const CodeBounds& bounds) {
  return lookup_tables(function, {FunctionScale()}, x, y, bounds);
}

TEST(LookupTable, WorkedNumbers) {
  // x = (byte - 128) / 2; y in steps of 0.25 around code 10.
  const auto table = lookup_table({FunctionKind::hard_swish}, {0.5f, 128, 0, 255}, {0.25f, 10, 0, 255}, kUnsigned);
  ASSERT_EQ(table.size(), 256u);
  EXPECT_EQ(table[122], 10);   // hard_swish(-3) = 0
  EXPECT_EQ(table[126], 9);    // -1 * 2 / 6 = -0.333, -1.33 steps
  EXPECT_EQ(table[130], 13);   // 1 * 4 / 6 = 0.667, 2.67 steps
  EXPECT_EQ(table[134], 22);   // 3 * 6 / 6 = 3, 12 steps
  EXPECT_EQ(table[255], 255);  // 63.5, 254 steps, cut off at code 255
}

TEST(LookupTable, TiesGoToTheEvenCode) {
  const auto table = lookup_table({FunctionKind::hard_swish}, {1, 0, 0, 255}, {2, 0, 0, 255}, kUnsigned);
  EXPECT_EQ(table[3], 2);  // hard_swish(3) = 3, 1.5 steps
  EXPECT_EQ(table[5], 2);  // 2.5
  EXPECT_EQ(table[7], 4);  // 3.5
}

TEST(LookupTable, SignedCodesAreTheirBytes) {
  const QParams codes{0.5f, 0, -128, 127};
  const auto table = lookup_table({FunctionKind::leaky_relu, 0.25f}, codes, codes, kSigned);
  EXPECT_EQ(table[0], 0);
  EXPECT_EQ(table[1], 1);
  EXPECT_EQ(table[127], 127);
  EXPECT_EQ(table[128], static_cast<uint8_t>(-32));  // -128
  EXPECT_EQ(table[255], 0);                          // -1: -0.25, to even
  EXPECT_EQ(table[250], static_cast<uint8_t>(-2));   // -6: -1.5, to even
}

TEST(LookupTable, AnActivationBehindItIsTheClamp) {
  const auto table = lookup_table({FunctionKind::tanh}, {0.1f, 128, 0, 255}, {0.01f, 100, 0, 255}, {100, 150});
  for (const uint8_t code : table) EXPECT_TRUE(code >= 100 && code <= 150);
  EXPECT_EQ(table[127], 100);
  EXPECT_EQ(table[129], 110);  // tanh(0.1) = 0.09967
  EXPECT_EQ(table[255], 150);
}

TEST(LookupTable, FollowsTheFunctionWithinHalfAStep) {
  for (const Named<FunctionKind>& row : kFunctions) {
    for (const QParams& x : {QParams{0.05f, 0, -128, 127}, QParams{0.03f, 90, 0, 255}, QParams{0.9f, 2, 0, 15}}) {
      for (const QParams& y : {QParams{0.08f, 0, -128, 127}, QParams{0.1f, 60, 0, 255}}) {
        const Function function{row.value, 0.1f};
        const auto table = lookup_table(function, x, y, {y.quant_min, y.quant_max});
        for (int code = x.quant_min; code <= x.quant_max; ++code) {
          const uint8_t byte = table[static_cast<uint8_t>(code)];
          const int found = y.is_signed() ? static_cast<int8_t>(byte) : byte;
          const double steps = evaluate(function, static_cast<double>(x.scale) * (code - x.zero_point)) / y.scale;
          const double wanted = std::clamp<double>(steps + y.zero_point, y.quant_min, y.quant_max);
          EXPECT_LE(std::fabs(found - wanted), 0.5 + 1e-4) << row.name << " at code " << code;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet
