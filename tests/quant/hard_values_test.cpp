// SPDX-License-Identifier: Apache-2.0
// Every calibrator on values that are not spread around zero, against the best clip that a plain search finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "src/quant/calibrate.h"
#include "tests/quant/values.h"

namespace octet {
namespace {

using enum CalibrationMethod;
using test::error_of, test::normal_values;

constexpr size_t kCount = 20'000;

struct Values {
  std::string name;
  std::vector<float> values;
  bool tail = false;  ///< few values lie far from the others
};

template <typename Make>
std::vector<float> made(const Make& make) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  std::vector<float> values(kCount);
  for (float& value : values) {
    const float u = uniform(random), z = normal(random);  // the order of a call's arguments is the compiler's choice
    value = make(z, u);
  }
  return values;
}

/// Returns values made from a standard normal z and from u, uniform in [0, 1).
std::vector<Values> hard_values() {
  std::vector<Values> all = {
      {"normal", made([](float z, float) { return z; })},
      {"relu", made([](float z, float) { return std::max(z, 0.0f); })},
      {"sigmoid", made([](float z, float) { return 1 / (1 + std::exp(-1.2f - 0.5f * z)); })},
      {"narrow gate", made([](float z, float) { return 0.9f + 0.01f * z; })},
      {"far above", made([](float, float u) { return 5 + u; })},
      {"far below", made([](float, float u) { return -5 - u; })},
      {"very far", made([](float z, float) { return 100 + z; })},
      {"two heaps", made([](float z, float u) { return u < 0.6f ? 0.1f * z : 8 + 0.3f * z; })},
      {"two heaps above zero", made([](float z, float u) { return u < 0.6f ? 0.1f * std::fabs(z) : 8 + 0.3f * z; })},
      {"a heap a side", made([](float z, float u) { return (u < 0.5f ? -4 : 4) + 0.3f * z; })},
      {"two numbers", made([](float, float u) { return u < 0.5f ? 1.0f : 3.0f; })},
      {"one number", std::vector<float>(kCount, 2.5f)},
      {"one number below zero", std::vector<float>(kCount, -2.5f)},
      {"zeros", std::vector<float>(kCount, 0.0f)},
      {"an outlier", made([](float z, float) { return std::max(z, 0.0f); }), true},
      {"zeros and an outlier", std::vector<float>(kCount, 0.0f), true},
      {"a long tail", made([](float z, float) { return std::exp(z); }), true},
  };
  for (Values& v : all)
    if (v.name.ends_with("an outlier")) v.values.push_back(60);
  return all;
}

struct Codes {
  std::string name;
  QParams range;
  bool affine;
};

std::vector<Codes> codes_of(int bits, bool negative) {
  const int count = 1 << bits;
  const QParams s{1, 0, -count / 2, count / 2 - 1}, u{1, 0, 0, count - 1};
  std::vector<Codes> all = {{"signed", s, false}, {"affine", u, true}};
  if (!negative) all.push_back({"unsigned", u, false});
  return all;
}

/// Clips both ends of the range of the values alike or one by one, in steps of a factor 2^(1/4), down to 1/64.
double best_error(const std::vector<float>& values, const Codes& codes) {
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  constexpr int kSteps = 24;
  const auto part = [](float end, int step) { return end * std::exp2(-static_cast<float>(step) / 4); };
  double best = INFINITY;
  for (int low = 0; low <= (*lo < 0 ? kSteps : 0); ++low) {
    for (int high = 0; high <= (*hi > 0 ? kSteps : 0); ++high)
      best =
          std::min(best, error_of(values, choose_qparams(part(std::min(*lo, 0.0f), low),
                                                         part(std::max(*hi, 0.0f), high), codes.range, codes.affine)));
  }
  return best;
}

/// What a method's error may be, in times the best clip's; 0: anything, for what the method is not made for.
double allowed(CalibrationMethod method, int bits, const Values& values) {
  switch (method) {
    case mse:
      return 1.06;
    case minmax:  // an outlier widens every step; 20,000 normal values reach 4.1 deviations, 4 bits want 2.5
      return values.tail ? 0 : bits == 8 ? 1.6 : 3;
    case percentile:  // of magnitudes: one value in 10,000 lies outside, however far
      return values.tail ? 0 : bits == 8 ? 1.6 : 3;
    case entropy:  // asks how many values are clipped, not how far
      return values.tail ? 0 : 3;
  }
  return 0;
}

TEST(HardValues, NoMethodIsFarFromTheBestClip) {
  for (const Values& v : hard_values()) {
    const auto [lo, hi] = std::minmax_element(v.values.begin(), v.values.end());
    Observer observer(ObserverKind::histogram);
    observer.observe(v.values.data(), v.values.size());
    for (const int bits : {8, 4}) {
      for (const Codes& codes : codes_of(bits, *lo < 0)) {
        const double best = best_error(v.values, codes), nothing = 1e-12 * *hi * *hi;
        for (const CalibrationMethod method : {minmax, percentile, mse, entropy}) {
          const double times = allowed(method, bits, v);
          if (times == 0) continue;
          const QParams q = calibrate(observer.statistics(), method, 99.99, codes.range, codes.affine);
          EXPECT_LE(error_of(v.values, q), times * best + nothing)
              << v.name << ", " << codes.name << ", " << bits << " bits, method " << static_cast<int>(method)
              << ": codes " << dequantize(q.quant_min, q) << " .. " << dequantize(q.quant_max, q) << " of values "
              << *lo << " .. " << *hi << ", best " << best;
        }
      }
    }
  }
}

/// The first and last bin reach beyond the values; the codes do not.
TEST(HardValues, NoRangeEndsBeyondTheValues) {
  for (const Values& v : hard_values()) {
    const auto [lo, hi] = std::minmax_element(v.values.begin(), v.values.end());
    if (*lo == 0 && *hi == 0) continue;
    Observer observer(ObserverKind::histogram);
    observer.observe(v.values.data(), v.values.size());
    for (const Codes& codes : codes_of(8, *lo < 0)) {
      const QParams all = choose_qparams(*lo, *hi, codes.range, codes.affine);
      for (const CalibrationMethod method : {minmax, percentile, mse, entropy})
        EXPECT_LE(calibrate(observer.statistics(), method, 99.99, codes.range, codes.affine).scale, all.scale)
            << v.name << ", " << codes.name << ", method " << static_cast<int>(method);
    }
  }
}

}  // namespace
}  // namespace octet
