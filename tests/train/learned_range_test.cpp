// SPDX-License-Identifier: Apache-2.0
// Ranges of activations that learn by LSQ+: gradients against the paper's formulas, in double.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "src/train/qat/fake_quantize.h"

namespace octet {
namespace {

using kernels::RangeRule;

constexpr float kRangeScales[] = {0.0371f, 0.1f, 1.0f / 3, 1.7f};  // no powers of two: v / s is rounded
constexpr int kWidths[] = {2, 3, 4, 8};

/// Returns half steps from beyond one end of the codes to beyond the other, their neighbours, and noise.
at::Tensor values(const QParams& q, at::IntArrayRef shape) {
  at::manual_seed(7);
  at::Tensor x = at::randn(shape).mul_(q.scale * static_cast<float>(q.quant_max) / 3).contiguous();
  float* value = x.mutable_data_ptr<float>();
  const int lowest = q.quant_min - q.zero_point - 2, half_steps = 2 * (q.quant_max - q.quant_min + 4);
  for (int64_t i = 0; i < std::min<int64_t>(3 * half_steps, x.numel()); ++i) {
    value[i] = q.scale * (static_cast<float>(lowest) + static_cast<float>(i / 3) / 2);
    if (i % 3 != 0) value[i] = std::nextafter(value[i], i % 3 == 1 ? -1e30f : 1e30f);
  }
  return x;
}

at::Tensor noise(at::IntArrayRef shape) {
  at::manual_seed(5);
  return at::randn(shape);
}

struct RangeOutcome {
  at::Tensor y, dx, dvalue, doffset;
};

RangeOutcome run(const at::Tensor& x, const LearnedEdge& learned, const QParams& q, const at::Tensor& dy) {
  const auto leaf = [](const at::Tensor& t) { return t.defined() ? t.detach().clone().requires_grad_(true) : t; };
  const at::Tensor v = leaf(x);
  const LearnedEdge edge{leaf(learned.value), leaf(learned.offset), learned.rule};
  const at::Tensor y = learned_fake_quantize(v, edge, q);
  y.backward(dy);
  return {y.detach(), v.grad(), edge.value.grad(), edge.offset.defined() ? edge.offset.grad() : at::Tensor()};
}

LearnedEdge lsq_plus(float scale, float offset) {
  return {at::full({}, scale), at::full({}, offset), RangeRule::lsq_plus};
}

/// A sum over values, and the sum of their magnitudes.
struct Expected {
  double gradient = 0, magnitude = 0;
  void add(double term) {
    gradient += term;
    magnitude += std::abs(term);
  }
};

/// The gradients are those of the paper's own form: v = x - b, codes from `lowest`, where b is that of the zero point
/// which the offset gives.
TEST(LsqPlus, GradientsAreTheFormulaAtEveryWidth) {
  for (const int bits : kWidths) {
    for (const int zero : {0, 1, (1 << bits) / 3, (1 << bits) - 1}) {
      for (const float scale : kRangeScales) {
        const QParams q{scale, zero, 0, (1 << bits) - 1}, stale{123, 77 % (1 << bits), 0, q.quant_max};
        const at::Tensor x = values(q, {4, 8, 25, 23}), dy = noise(x.sizes());
        const float offset = -scale * (static_cast<float>(zero) + (zero == 0 ? 0.0f : 0.3f));
        const RangeOutcome ours = run(x, lsq_plus(scale, offset), stale, dy);
        const double s = scale, b = -s * zero, factor = 1 / std::sqrt(8.0 * 25 * 23 * q.quant_max);
        Expected of_scale, of_offset;
        const float *v = x.const_data_ptr<float>(), *g = dy.const_data_ptr<float>();
        for (int64_t i = 0; i < x.numel(); ++i) {
          const float code = std::rint(v[i] / scale) + static_cast<float>(zero);  // which, is decided in float
          const bool below = code<0, above = code> static_cast<float>(q.quant_max);
          const double end = below ? 0 : q.quant_max, inside = static_cast<double>(code) - (v[i] - b) / s;
          of_scale.add(g[i] * (below || above ? end : inside));
          of_offset.add(below || above ? g[i] : 0);
          const double y = (below || above ? end : static_cast<double>(code)) * s + b;
          ASSERT_NEAR(ours.y.const_data_ptr<float>()[i], y, 1e-6 * s * q.quant_max);
          ASSERT_EQ(ours.dx.const_data_ptr<float>()[i], below || above ? 0 : g[i]) << v[i];
        }
        ASSERT_NEAR(ours.dvalue.item<float>(), of_scale.gradient * factor, 1e-7 * of_scale.magnitude * factor)
            << bits << " bits, zero " << zero << ", scale " << scale;
        ASSERT_NEAR(ours.doffset.item<float>(), of_offset.gradient * factor, 1e-7 * of_offset.magnitude * factor)
            << bits << " bits, zero " << zero << ", scale " << scale;
      }
    }
  }
}

/// One value at a time: inside, at ties, at the last value of an end's code and the next one.
TEST(LsqPlus, SlopesAtTheEdges) {
  const QParams q{0.5f, 0, 0, 7};  // exact: reals from -1 to 2.5 with b = -1, ties at quarters
  const auto slopes = [&](float x) {
    const RangeOutcome one = run(at::full({1, 1}, x), lsq_plus(0.5f, -1), q, at::ones({1, 1}));
    return std::pair(one.dvalue.item<double>() * std::sqrt(7.0), one.doffset.item<double>() * std::sqrt(7.0));
  };
  const auto expect = [&](float x, double scale, double offset) {
    const auto [of_scale, of_offset] = slopes(x);
    EXPECT_NEAR(of_scale, scale, 1e-5) << x;
    EXPECT_NEAR(of_offset, offset, 1e-5) << x;
  };
  expect(0, 0, 0);
  expect(0.25f, -0.5, 0);  // a tie goes to the even code
  expect(0.75f, 0.5, 0);
  expect(2.5f, 0, 0);                            // the highest code itself
  expect(2.75f, 7, 1);                           // the tie above it goes to 6 steps, which is beyond
  expect(std::nextafter(2.75f, 0.0f), -0.5, 0);  // the last of its values
  expect(-1.25f, 0.5, 0);                        // the tie below goes to -2 steps: still code 0
  expect(std::nextafter(-1.25f, -9.0f), 0, 1);
  expect(100, 7, 1);
  expect(-100, 0, 1);
  expect(std::nanf(""), 0, 1);  // takes the lowest code
}

/// Beyond the codes the zero point stays at their end: zero is a code whatever b is.
TEST(LsqPlus, ZeroStaysACode) {
  const QParams q{1, 0, 0, 15};
  const at::Tensor zero = at::zeros({1, 4});
  for (const float offset : {-1e30f, -40.0f, -0.31f, 0.0f, 0.2f, 1e30f, INFINITY, -INFINITY, std::nanf("")})
    EXPECT_TRUE(at::equal(learned_fake_quantize(zero, lsq_plus(0.1f, offset), q), zero)) << offset;
  const at::Tensor y = learned_fake_quantize(at::full({1, 1}, -50.0f), lsq_plus(0.5f, -40), q);
  EXPECT_EQ(y.item<float>(), -7.5f);  // the zero point is 15
}

/// A small move of the parameters changes the clipped values' sum by what the gradient says.
TEST(LearnedRange, ClippedValuesFollowTheirGradient) {
  const QParams q{0.25f, 4, 0, 15};
  const at::Tensor beyond = at::tensor({50.0f, -50.0f, 60.0f, 70.0f}).view({1, 4}), ones = at::ones({1, 4});
  const auto sum = [&](const LearnedEdge& edge) { return learned_fake_quantize(beyond, edge, q).sum().item<double>(); };
  // Offsets are integer multiples of the step, where rounding the zero point loses nothing.
  const double moved = sum(lsq_plus(0.25f, -0.75f)) - sum(lsq_plus(0.25f, -1));
  const double factor = 1 / std::sqrt(4.0 * 15);
  EXPECT_NEAR(moved / 0.25, run(beyond, lsq_plus(0.25f, -1), q, ones).doffset.item<double>() / factor, 1e-5);
}

TEST(LearnedRange, SameBitsWithAnyThreads) {
  const QParams q{0.0371f, 3, 0, 15};
  const at::Tensor x = values(q, {4, 8, 64, 96}), dy = noise(x.sizes());
  const LearnedEdge edge = lsq_plus(0.0371f, -0.11f);
  const int before = at::get_num_threads();
  std::vector<RangeOutcome> outcomes;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    outcomes.push_back(run(x, edge, q, dy));
  }
  for (const RangeOutcome& outcome : outcomes) {
    EXPECT_TRUE(at::equal(outcome.dvalue, outcomes[0].dvalue));
    EXPECT_TRUE(at::equal(outcome.dx, outcomes[0].dx));
    EXPECT_TRUE(at::equal(outcome.doffset, outcomes[0].doffset));
  }
  at::set_num_threads(before);
}

TEST(LearnedRange, NarrowTypesAreWidenedFirst) {
  const QParams q{0.0371f, 3, 0, 15};
  const LearnedEdge edge = lsq_plus(0.0371f, -0.11f);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = values(q, {2, 8, 20, 24}).to(type), dy = noise(x.sizes()).to(type);
    const RangeOutcome narrow = run(x, edge, q, dy), wide = run(x.to(at::kFloat), edge, q, dy.to(at::kFloat));
    EXPECT_EQ(narrow.dvalue.item<float>(), wide.dvalue.item<float>());
    EXPECT_TRUE(at::equal(narrow.y, wide.y.to(type)));
    EXPECT_TRUE(at::equal(narrow.dx, wide.dx.to(type)));
    EXPECT_EQ(narrow.doffset.item<float>(), wide.doffset.item<float>());
  }
}

}  // namespace
}  // namespace octet
