// SPDX-License-Identifier: Apache-2.0
// What a function cannot tell apart gets no codes.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/quant/calibrate.h"
#include "src/quant/functions.h"

namespace octet {
namespace {

/// The definition: every value beyond the interval gives f within half a step of what its end gives.
void expect_within_half_a_step(const Function& function, const Interval& values, const Interval& part, int steps) {
  double low = INFINITY, high = -INFINITY, off = 0;
  for (double x = values.lo; x <= values.hi; x += 0.001) {
    const double f = evaluate(function, x);
    low = std::min(low, f), high = std::max(high, f);
    off = std::max(off, std::abs(f - evaluate(function, std::clamp(x, part.lo, part.hi))));
  }
  EXPECT_LE(off, (high - low) / steps / 2 * 1.01) << function_text(function);
}

TEST(FunctionRanges, SiluIsFlatFarBelowZero) {
  const Function silu{FunctionKind::silu};
  const Interval part = told_apart(silu, {-40, 10}, 255);
  // f(x) = -(10 + 0.278) / 255 / 2 = -0.02015 at x = -5.63
  EXPECT_NEAR(part.lo, -5.63, 0.02);
  EXPECT_EQ(part.hi, 10);
  expect_within_half_a_step(silu, {-40, 10}, part, 255);
  EXPECT_LT(told_apart(silu, {-40, 1}, 255).lo, part.lo - 1);  // the codes of smaller outputs tell more apart
  EXPECT_GT(told_apart(silu, {-40, 10}, 15).lo, -3.5);         // those of four bits less
}

TEST(FunctionRanges, EveryFunctionKeepsItsCodes) {
  for (const auto& [f, name] : kFunctions) {
    for (const Interval& values : {Interval{-30, 30}, Interval{-3, 50}, Interval{-50, 2}, Interval{1, 2}})
      expect_within_half_a_step({f}, values, told_apart({f}, values, 255), 255);
  }
  const Interval part = told_apart({FunctionKind::sigmoid}, {-30, 30}, 255);
  EXPECT_NEAR(part.lo, -6.24, 0.03);  // sigmoid(-6.24) = 1 / 510
  EXPECT_NEAR(part.hi, 6.24, 0.03);
}

/// A convolution, and a lookup with scales for each of its two channels.
Prepared convolution_and_silu() {
  Graph graph;
  graph.nodes.push_back({.name = "input", .shape = {2, 3, 3}});
  graph.nodes.push_back({.name = "conv", .op = Op::conv2d, .inputs = {0}, .out_channels = 2});
  graph.nodes.push_back({.name = "silu", .op = Op::lookup, .inputs = {1}, .groups = 2});
  infer_shapes(graph);
  return prepare(graph, {});
}

/// A channel whose input is halved before the function needs its codes twice as far down.
TEST(FunctionRanges, TheCutHoldsForEachChannel) {
  const Prepared prepared = convolution_and_silu();
  FloatParams params = {{"silu.input_scale", {1, 1}}, {"silu.output_scale", {1, 1}}};
  const Statistics seen{.lo = -40, .hi = 10, .seen = 1, .histogram = {}};
  const std::vector<int> lookups = only_lookups(prepared)[1];
  ASSERT_EQ(lookups, std::vector<int>{2});
  EXPECT_NEAR(told_apart(seen, prepared, lookups, params).lo, -5.63, 0.02);
  params.at("silu.input_scale")[1] = 0.5f;
  const double lo = told_apart(seen, prepared, lookups, params).lo;
  EXPECT_NEAR(lo, 2 * told_apart(Function{FunctionKind::silu}, {-20, 5}, 255).lo, 1e-9);
  EXPECT_LT(lo, -12);
}

/// Each of several intervals is cut where it would be alone, though the function is evaluated once for all.
TEST(FunctionRanges, IntervalsWithinEachOtherAreCutAsAlone) {
  const Prepared prepared = convolution_and_silu();
  const FloatParams params = {{"silu.input_scale", {1, 0.5f}}, {"silu.output_scale", {1, 1}}};
  std::vector<Interval> nested;
  for (int k = 0; k <= 30; ++k)
    nested.push_back({std::max(-300.0, -1000 * std::exp2(-k / 3.0)), 1000 * std::exp2(-k / 3.0)});
  nested.push_back({0, 0});
  const std::vector<Interval> parts = told_apart(nested, prepared, {2}, params);
  ASSERT_EQ(parts.size(), nested.size());
  for (size_t k = 0; k < nested.size(); ++k) {
    const Statistics seen{.lo = nested[k].lo, .hi = nested[k].hi, .seen = 1, .histogram = {}};
    const Statistics alone = told_apart(seen, prepared, {2}, params);
    const double width = nested[k].hi - nested[k].lo;
    EXPECT_NEAR(parts[k].lo, alone.lo, 0.01 * width) << k;
    EXPECT_NEAR(parts[k].hi, alone.hi, 0.01 * width) << k;
    EXPECT_LE(parts[k].lo, alone.lo + 0.001 * width) << k;  // never more than alone, but for a sample
  }
  EXPECT_EQ(told_apart(nested, prepared, {}, params).size(), nested.size());
}

TEST(FunctionRanges, AConstantStaysAsItIs) {
  const Interval part = told_apart({FunctionKind::hard_sigmoid}, {-20, -10}, 255);
  EXPECT_EQ(part.lo, -20);
  EXPECT_EQ(part.hi, -10);
}

TEST(FunctionRanges, ClippedStatisticsKeepEveryValue) {
  Observer observer(ObserverKind::histogram);
  std::vector<float> x;
  for (int i = -2000; i <= 1000; ++i) x.push_back(static_cast<float>(i) / 50);
  observer.observe(x.data(), x.size());
  const Statistics s = clipped(observer.statistics(), {-6, 15});
  EXPECT_EQ(s.lo, -6);
  EXPECT_EQ(s.hi, 15);
  const auto sum = [](const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); };
  EXPECT_EQ(sum(s.histogram), static_cast<double>(x.size()));
  const double width = bin_width(s);
  for (int i = 0; i < kHistogramBins; ++i) {
    const double end = s.histogram_lo + (i + 1) * width;
    if (end < -6 - 1e-9 || end - width > 15 + 1e-9) {
      EXPECT_EQ(s.histogram[i], 0) << i;
    }
  }
  const QParams codes{1, 0, 0, 255};
  const QParams q = calibrate(s, CalibrationMethod::minmax, 100, codes, true);
  EXPECT_NEAR(q.scale, 21.0 / 255, 1e-6);
}

}  // namespace
}  // namespace octet
