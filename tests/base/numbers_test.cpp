// SPDX-License-Identifier: Apache-2.0
// Every number that a file can hold: written and read again, or refused with its place.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/json.h"
#include "src/base/safetensors.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using Limits = std::numeric_limits<double>;

TEST(Numbers, JsonHoldsEveryOne) {
  const std::vector<double> all = {0.0,
                                   -0.0,
                                   1.0 / 3,
                                   Limits::denorm_min(),
                                   -Limits::min(),
                                   Limits::max(),
                                   Limits::quiet_NaN(),
                                   Limits::infinity(),
                                   -Limits::infinity()};
  nlohmann::json written = {{"name", "float"}, {"inner", {{"all", all}}}, {"count", 3}};
  for (size_t i = 0; i < all.size(); ++i) written["at" + std::to_string(i)] = all[i];
  const std::string text = spell_numbers(written).dump();
  EXPECT_EQ(text.find("null"), std::string::npos) << text;
  EXPECT_NE(text.find("\"-Infinity\""), std::string::npos) << text;
  const nlohmann::json read = read_numbers(nlohmann::json::parse(text));
  EXPECT_EQ(read.at("name"), "float");
  EXPECT_EQ(read.at("count").get<int>(), 3);
  for (size_t i = 0; i < all.size(); ++i) {
    for (const nlohmann::json& value : {read.at("at" + std::to_string(i)), read.at("inner").at("all").at(i)}) {
      const auto number = value.get<double>();
      if (std::isnan(all[i])) {
        EXPECT_TRUE(std::isnan(number));
      } else {
        EXPECT_EQ(std::bit_cast<uint64_t>(number), std::bit_cast<uint64_t>(all[i])) << all[i];
      }
    }
  }
}

/// What octet wrote for them once.
TEST(Numbers, NullIsReadAsNaN) {
  EXPECT_TRUE(std::isnan(read_numbers(nlohmann::json::parse("{\"loss\": null}")).at("loss").get<double>()));
}

TEST(Numbers, AWeightThatIsNoneIsNamedWithItsPlace) {
  std::vector<float> values(24, 0.5f);
  const auto refused = [&](const std::string& name) {
    return error_of([&] { require_usable_weights("net.pth", name, float_tensor({2, 3, 4}, values.data())); });
  };
  EXPECT_NO_THROW(require_usable_weights("net.pth", "conv.weight", float_tensor({2, 3, 4}, values.data())));
  values[1 * 12 + 2 * 4 + 3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refused("conv.weight").find("net.pth: tensor 'conv.weight' holds nan at [1, 2, 3];"), std::string::npos)
      << refused("conv.weight");
  values[6] = -std::numeric_limits<float>::infinity();
  EXPECT_NE(refused("conv.weight").find("'conv.weight' holds -inf at [0, 1, 2], the first of 2 such values;"),
            std::string::npos)
      << refused("conv.weight");
  values.assign(24, 0.5f);
  values[5] = -1e-3f;
  EXPECT_NO_THROW(require_usable_weights("net.pth", "bn.running_mean", float_tensor({2, 3, 4}, values.data())));
  EXPECT_NE(
      refused("bn.running_var").find("'bn.running_var' holds -0.001 at [0, 1, 1], and a variance is not negative"),
      std::string::npos)
      << refused("bn.running_var");
}

/// A double that no float32 holds becomes infinite where it is read.
TEST(Numbers, ADoubleBeyondFloatIsRefused) {
  TensorData huge{DType::f64, {1}, std::vector<std::byte>(8)};
  const double value = 1e300;
  std::memcpy(huge.bytes.data(), &value, 8);
  EXPECT_NE(error_of([&] { require_usable_weights("f", "w", huge); }).find("holds inf at [0]"), std::string::npos);
}

}  // namespace
}  // namespace octet
