// SPDX-License-Identifier: Apache-2.0
#include "src/quant/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "tests/quant/values.h"

namespace octet {
namespace {

constexpr QParams kSigned{1, 0, -128, 127}, kUnsigned{1, 0, 0, 255};
using enum CalibrationMethod;
using test::error_of, test::normal_values;

std::vector<float> even_values(size_t count, float lo, float hi) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = lo + (hi - lo) * (static_cast<float>(i) + 0.5f) / static_cast<float>(count);
  return values;
}

Statistics observed(const std::vector<float>& values, ObserverKind kind = ObserverKind::histogram) {
  Observer observer(kind);
  observer.observe(values.data(), values.size());
  return observer.statistics();
}

QParams calibrated(const std::vector<float>& values, CalibrationMethod method, const QParams& range, bool affine,
                   double percentile = 99.99) {
  return calibrate(observed(values), method, percentile, range, affine);
}

TEST(Observer, MinMaxAndMovingAverage) {
  const std::vector<float> a{-1, 2, 0.5f}, b{-3, 1}, c{0, 4};
  Observer minmax(ObserverKind::minmax), average(ObserverKind::moving_average, 0.25);
  for (Observer* observer : {&minmax, &average}) {
    for (const auto& batch : {a, b, c}) observer->observe(batch.data(), batch.size());
  }
  EXPECT_EQ(minmax.statistics().lo, -3);
  EXPECT_EQ(minmax.statistics().hi, 4);
  EXPECT_TRUE(minmax.statistics().histogram.empty());
  // The mean of as many batches as make up the average: (-1 - 3 + 0) / 3, (2 + 1 + 4) / 3.
  EXPECT_DOUBLE_EQ(average.statistics().lo, -4.0 / 3);
  EXPECT_DOUBLE_EQ(average.statistics().hi, 7.0 / 3);
  EXPECT_EQ(average.statistics().seen, 3);
  average.observe(a.data(), a.size());  // a quarter each; from here on the newest has a quarter of the weight
  average.observe(b.data(), b.size());
  EXPECT_DOUBLE_EQ(average.statistics().lo, -1.25 + (-3 + 1.25) / 4);
  EXPECT_DOUBLE_EQ(average.statistics().hi, 2.25 + (1 - 2.25) / 4);
}

TEST(Observer, RefusesWhatIsNoNumber) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 1e31f, -1e31f}) {
    std::vector<float> values(100, 1.0f);
    values[77] = bad;
    Observer observer(ObserverKind::histogram);
    EXPECT_THROW(observer.observe(values.data(), values.size()), Error) << bad;
    EXPECT_EQ(observer.statistics().seen, 0);
  }
}

TEST(Observer, HistogramCountsEveryValueInItsBin) {
  const std::vector<float> values = normal_values(20000, 0.3f, 1.7f, 1);
  const Statistics s = observed(values);
  ASSERT_EQ(s.histogram.size(), static_cast<size_t>(kHistogramBins));
  std::vector<double> expected(kHistogramBins);
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  EXPECT_EQ(std::exp2(std::round(std::log2(width))), width);
  for (const float value : values)
    ++expected[static_cast<size_t>(std::floor((value - static_cast<double>(s.histogram_lo)) / width))];
  EXPECT_EQ(s.histogram, expected);
}

TEST(Observer, TheLargestValueHasABinWhereverItLies) {
  for (const float largest : {1.0f, std::nextafter(1.0f, 0.0f), 1.5f, 4096.0f}) {  // a power of two begins a bin
    const Statistics s = observed({0.25f, largest, 0.0f});
    EXPECT_GT(s.histogram_hi, largest);
    EXPECT_EQ(std::accumulate(s.histogram.begin(), s.histogram.end(), 0.0), 3) << largest;
  }
}

TEST(Observer, HistogramDoesNotDependOnTheOrderOfBatches) {
  // Ranges grow, shift to the other sign, and shrink again.
  std::vector<std::vector<float>> batches{std::vector<float>(10, 0.0f), even_values(500, 0, 1e-3f),
                                          normal_values(1000, 0, 1, 3), even_values(700, -40, -2),
                                          normal_values(900, 5, 30, 4), {1000.0f, -0.25f}};
  std::vector<float> all;
  Observer forward(ObserverKind::histogram), backward(ObserverKind::histogram);
  for (const auto& batch : batches) {
    forward.observe(batch.data(), batch.size());
    all.insert(all.end(), batch.begin(), batch.end());
  }
  for (auto batch = batches.rbegin(); batch != batches.rend(); ++batch) backward.observe(batch->data(), batch->size());
  const Statistics f = forward.statistics(), b = backward.statistics(), once = observed(all);
  EXPECT_EQ(f.histogram, once.histogram);
  EXPECT_EQ(b.histogram, once.histogram);
  EXPECT_EQ(f.histogram_lo, once.histogram_lo);
  EXPECT_EQ(b.histogram_hi, once.histogram_hi);
  EXPECT_EQ(std::accumulate(f.histogram.begin(), f.histogram.end(), 0.0), static_cast<double>(all.size()));
}

TEST(Observer, AddedOnesAreOneThatSawAll) {
  const std::vector<std::vector<float>> parts{
      normal_values(1000, 0, 1, 3), even_values(700, -40, -2), {}, std::vector<float>(10, 0.0f), {1000.0f, -0.25f}};
  for (const ObserverKind kind : {ObserverKind::histogram, ObserverKind::minmax}) {
    std::vector<Observer> own(parts.size(), Observer(kind));
    Observer all(kind), none(kind);
    for (size_t i = 0; i < parts.size(); ++i) {
      own[i].observe(parts[i].data(), parts[i].size());
      all.observe(parts[i].data(), parts[i].size());
    }
    const Statistics whole = all.statistics();
    for (size_t first = 0; first < parts.size(); ++first) {
      Observer sum = own[first];
      for (size_t i = 1; i < parts.size(); ++i) sum.add(own[(first + i) % parts.size()].statistics());
      const Statistics s = sum.statistics();
      EXPECT_EQ(s.histogram, whole.histogram) << first;
      EXPECT_EQ(s.histogram_lo, whole.histogram_lo);
      EXPECT_EQ(s.histogram_hi, whole.histogram_hi);
      EXPECT_EQ(s.lo, whole.lo);
      EXPECT_EQ(s.hi, whole.hi);
      EXPECT_EQ(s.seen, whole.seen);
    }
    none.add({});
    EXPECT_EQ(none.statistics().seen, 0);
  }
  Observer average(ObserverKind::moving_average);
  EXPECT_THROW(average.add(observed({1, 2})), Error);
}

TEST(Observer, RestoredStatisticsContinueTheSame) {
  const auto a = normal_values(1000, 0, 1, 5), b = normal_values(1000, 0, 9, 6);
  Observer whole(ObserverKind::histogram), resumed(ObserverKind::histogram);
  whole.observe(a.data(), a.size());
  resumed.restore(whole.statistics());
  whole.observe(b.data(), b.size());
  resumed.observe(b.data(), b.size());
  EXPECT_EQ(whole.statistics().histogram, resumed.statistics().histogram);
  EXPECT_EQ(whole.statistics().histogram_lo, resumed.statistics().histogram_lo);
}

TEST(Observer, RefusesStatisticsThatNoneCanHave) {
  // They come from state files; bins that do not fit the range would be written outside the histogram later.
  const Statistics good = observed(normal_values(1000, 0, 1, 5));
  const auto refused = [&](const auto& damage) {
    Statistics bad = good;
    damage(bad);
    EXPECT_THROW(Observer(ObserverKind::histogram).restore(bad), Error);
  };
  EXPECT_NO_THROW(Observer(ObserverKind::histogram).restore(good));
  refused([](Statistics& s) { s.lo = NAN; });
  refused([](Statistics& s) { std::swap(s.lo, s.hi); });
  refused([](Statistics& s) { s.histogram.back() = 1; });  // beyond the largest value
  refused([](Statistics& s) { s.histogram[kHistogramBins / 2] = -1; });
  refused([](Statistics& s) { s.histogram.pop_back(); });
  refused([](Statistics& s) { s.histogram_hi = s.histogram_lo; });
  refused([](Statistics& s) { s.histogram_hi *= 1.5f; });  // no power of two
  refused([](Statistics& s) { s.histogram_hi -= 2 * s.histogram_lo, s.histogram_lo = -s.histogram_lo; });
}

TEST(ChooseQParams, WorkedNumbers) {
  EXPECT_EQ(choose_qparams(-3, 6.35f, kSigned, false), (QParams{6.35f / 127, 0, -128, 127}));
  EXPECT_EQ(choose_qparams(-12.7f, 6, kSigned, false), (QParams{12.7f / 127, 0, -128, 127}));
  EXPECT_EQ(choose_qparams(0, 5.1f, kUnsigned, false), (QParams{5.1f / 255, 0, 0, 255}));
  // scale = 2.55 / 255 = 0.01; zero_point = rint(0.5 / 0.01) = 50
  EXPECT_EQ(choose_qparams(-0.5f, 2.05f, kUnsigned, true),
            (QParams{static_cast<float>((2.05f + 0.5f) / 255.0), 50, 0, 255}));
  EXPECT_EQ(choose_qparams(2, 5.1f, kUnsigned, true), (QParams{5.1f / 255, 0, 0, 255}));      // widened to zero
  EXPECT_EQ(choose_qparams(-5.1f, -1, kUnsigned, true), (QParams{5.1f / 255, 255, 0, 255}));  //
  EXPECT_EQ(choose_qparams(0, 0, kSigned, false), (QParams{1.0f / 127, 0, -128, 127}));       // a dead layer
  EXPECT_EQ(choose_qparams(0, 0, kUnsigned, true), (QParams{1.0f / 255, 0, 0, 255}));         //
  EXPECT_EQ(choose_qparams(-3e38f, 3e38f, kUnsigned, true).zero_point, 128);                  // rint(127.5)
  EXPECT_EQ(choose_qparams(0, 1e-40f, kUnsigned, false).scale, kSmallestScale);
  EXPECT_THROW(choose_qparams(1, -1, kSigned, false), Error);
  EXPECT_THROW(choose_qparams(0, INFINITY, kSigned, false), Error);
  EXPECT_THROW(choose_qparams(NAN, 1, kSigned, true), Error);
}

TEST(Calibrate, NeedsObservationsAndHistograms) {
  EXPECT_THROW(calibrate({}, minmax, 99, kSigned, false), Error);
  const Statistics s = observed({1, 2}, ObserverKind::minmax);
  EXPECT_EQ(calibrate(s, minmax, 99, kSigned, false).scale, 2.0f / 127);
  EXPECT_THROW(calibrate(s, mse, 99, kSigned, false), Error);
  EXPECT_THROW(calibrated({1, 2}, percentile, kSigned, false, 0), Error);
  EXPECT_THROW(calibrated({1, 2}, percentile, kSigned, false, 101), Error);
}

TEST(Calibrate, AnEdgeOfZerosGetsAUsableScale) {
  for (const CalibrationMethod method : {minmax, percentile, mse, entropy}) {
    EXPECT_EQ(calibrated(std::vector<float>(50, 0.0f), method, kUnsigned, true).scale, 1.0f / 255);
  }
}

TEST(Calibrate, PercentileIsOfMagnitudes) {
  const auto values = even_values(100000, -1, 3);
  // 10 % of 4 are above 2.6, and -1 is nearer to zero than that; half a step by the zero point.
  const QParams right = calibrated(values, percentile, kUnsigned, true, 90);
  EXPECT_NEAR(dequantize(right.quant_min, right), -1, 0.01);
  EXPECT_NEAR(dequantize(right.quant_max, right), 2.6, 0.01);
  // 60 % of 4 lie within 1.4 from zero, 40 % within 0.8: there both ends are cut.
  const QParams both = calibrated(values, percentile, kUnsigned, true, 40);
  EXPECT_NEAR(dequantize(both.quant_min, both), -0.8, 0.01);
  EXPECT_NEAR(dequantize(both.quant_max, both), 0.8, 0.01);
  EXPECT_NEAR(calibrated(values, percentile, kSigned, false, 60).scale * 127, 1.4, 0.001);
  const QParams all = calibrated(values, percentile, kSigned, false, 100);
  EXPECT_FLOAT_EQ(all.scale, *std::max_element(values.begin(), values.end()) / 127);
}

TEST(Calibrate, PercentileAfterAReluHasOneTail) {
  auto values = even_values(100000, -1, 1);
  for (float& value : values) value = std::max(value, 0.0f);
  // 1 % of all, zeros included, are above 0.98.
  EXPECT_NEAR(calibrated(values, percentile, kUnsigned, false, 99).scale * 255, 0.98, 0.001);
  EXPECT_NEAR(calibrated(values, percentile, kUnsigned, true, 99).scale * 255, 0.98, 0.001);
}

/// Once as many values lie outside as may, the range ends at the next value, not somewhere in the void before it.
TEST(Calibrate, PercentileEndsAtAValueWhereBinsAreEmpty) {
  auto values = even_values(99, 0, 1);
  values.push_back(100);
  const double bin = 1.0 / 32;  // 100 needs bins of this width
  EXPECT_NEAR(calibrated(values, percentile, kUnsigned, false, 99).scale * 255, values[98], bin);
  EXPECT_NEAR(calibrated(values, percentile, kUnsigned, false, 99.5).scale * 255, 100, bin);
  EXPECT_NEAR(calibrated(values, percentile, kUnsigned, false, 100).scale * 255, 100, 1e-5);
}

TEST(Calibrate, UniformValuesKeepTheirWholeRange) {
  const auto values = even_values(100000, 0, 1);
  for (const CalibrationMethod method : {minmax, percentile, mse}) {
    EXPECT_NEAR(calibrated(values, method, kUnsigned, false).scale * 255, 1, 0.01);
  }
}

// The optimal uniform quantizers of a Gaussian: Max, "Quantizing for minimum distortion", IRE Trans. 1960, table II
// (2^b levels, step in deviations). Those have levels at half steps; ours have one at zero and 2^b - 1 or 2^b levels,
// hence a comparison of the distortions only: table II gives 0.1188 (4 levels), 0.03744 (8), 0.01154 (16).
TEST(Calibrate, MseReachesTheKnownDistortionOfAGaussian) {
  const auto values = normal_values(400000, 0, 1, 8);
  const std::array<std::pair<int, double>, 3> table{{{2, 0.1188}, {3, 0.03744}, {4, 0.01154}}};
  for (const auto& [bits, distortion] : table) {
    const int levels = 1 << bits;
    const double affine = error_of(values, calibrated(values, mse, {1, 0, 0, levels - 1}, true));
    EXPECT_GT(affine, distortion * 0.99) << bits;
    EXPECT_LT(affine, distortion * (bits == 2 ? 1.5 : 1.12)) << bits;  // the price of a level at zero
  }
}

struct MseCase {
  QParams range;
  bool affine;
  std::vector<float> values;
};

/// No range of a fine brute-force grid may beat the search by more than a few permil, on the values themselves.
TEST(Calibrate, MseBeatsBruteForce) {
  for (const int bits : {2, 3, 4, 6, 8}) {
    const int codes = 1 << bits;
    const QParams s8{1, 0, -codes / 2, codes / 2 - 1}, u8{1, 0, 0, codes - 1};
    auto outliers = normal_values(20000, 0, 1, 9);
    for (int i = 0; i < 5; ++i) outliers.push_back(60.0f + static_cast<float>(i));
    auto half = normal_values(20000, 0, 1, 10);
    for (float& value : half) value = std::max(value, 0.0f);
    const std::vector<MseCase> cases{{s8, false, normal_values(20000, 0, 1, 8)},
                                     {s8, false, outliers},
                                     {u8, false, half},
                                     {u8, true, half},
                                     {u8, true, outliers},
                                     {u8, true, normal_values(20000, 2, 1, 11)}};
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto& [range, affine, values] = cases[i];
      const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
      const double found = error_of(values, calibrated(values, mse, range, affine));
      double best = INFINITY;
      for (double b = 0.02; b <= 1; b *= 1.15) {
        for (double a = affine && *lo < 0 ? 0.02 : 1; a <= 1; a *= 1.15) {
          const float low = affine ? static_cast<float>(*lo * a) : 0.0f;
          const double high = affine ? *hi : std::max(-*lo, *hi);
          best = std::min(best, error_of(values, choose_qparams(range.is_signed() ? -static_cast<float>(high * b) : low,
                                                                static_cast<float>(high * b), range, affine)));
        }
      }
      EXPECT_LT(found, best * 1.02) << "bits " << bits << " case " << i;
    }
  }
}

/// Most values are 1, where a bin begins: they are no part of that bin's width, which would make the whole range look
/// better than a narrower one that rounds the others well.
TEST(Calibrate, MseEndsAtTheLargestValue) {
  constexpr QParams kTwoBits{1, 0, 0, 3};
  std::vector<float> values = even_values(5'100, 0.5f, 0.5f + 1.0f / 2048);
  values.insert(values.end(), 100'000, 1.0f);
  EXPECT_LT(error_of(values, calibrated(values, mse, kTwoBits, false)),
            error_of(values, choose_qparams(0, 1, kTwoBits, false)));
}

TEST(Calibrate, EntropyDropsOutliersAndKeepsTheBulk) {
  auto values = normal_values(200000, 0, 1, 12);
  values.insert(values.end(), {40.0f, -42.0f, 45.0f});
  for (const bool affine : {false, true}) {
    const QParams q = calibrated(values, entropy, affine ? kUnsigned : kSigned, affine);
    EXPECT_LT(dequantize(q.quant_max, q), 12) << affine;
    EXPECT_GT(dequantize(q.quant_max, q), 2.5) << affine;
    EXPECT_LT(dequantize(q.quant_min, q), -2.5) << affine;
  }
  for (float& value : values) value = std::max(value, 0.0f);
  const QParams q = calibrated(values, entropy, kUnsigned, false);
  EXPECT_LT(dequantize(255, q), 12);
  EXPECT_GT(dequantize(255, q), 2.5);
}

struct Scheme {
  const char* name;
  bool is_signed, affine;
};

TEST(Calibrate, EveryMethodSchemeAndWidthOfCodesIsUsable) {
  const auto mixed = normal_values(5000, 0.4f, 1, 13);
  auto positive = mixed;
  for (float& value : positive) value = std::max(value, 0.0f);
  for (const Scheme& scheme :
       {Scheme{"symmetric_s8", true, false}, {"unsigned_u8", false, false}, {"affine_u8", false, true}}) {
    for (int bits = 2; bits <= 8; ++bits) {
      const int codes = 1 << bits;
      const auto& values = scheme.is_signed || scheme.affine ? mixed : positive;
      const QParams range{1, 0, scheme.is_signed ? -codes / 2 : 0, scheme.is_signed ? codes / 2 - 1 : codes - 1};
      const double least = error_of(values, calibrated(values, mse, range, scheme.affine));
      for (const CalibrationMethod method : {minmax, percentile, mse, entropy}) {
        const QParams q = calibrated(values, method, range, scheme.affine);
        const double error = error_of(values, q);
        const std::string name = std::string(scheme.name) + " bits " + std::to_string(bits) + " method " +
                                 std::to_string(static_cast<int>(method));
        EXPECT_EQ(quantize(0.0f, q), q.zero_point) << name;
        EXPECT_EQ(q.quant_min, range.quant_min) << name;
        EXPECT_EQ(q.quant_max, range.quant_max) << name;
        EXPECT_GE(error, least * 0.99) << name;
        EXPECT_LT(error, least * 8) << name;
      }
    }
  }
}

}  // namespace
}  // namespace octet
