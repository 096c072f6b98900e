// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/fake_quantize.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/error.h"
#include "tests/train/fake_quantize_outcome.h"

namespace octet {
namespace {

using test::Outcome;
using test::run;

const QParams kRanges[] = {{0.0625f, 0, -128, 127}, {0.03125f, 37, 0, 255}, {0.25f, 0, 0, 255}, {0.5f, 3, 0, 15}};

at::Tensor values(const QParams& q) { return test::values(q, {2, 4, 25, 307}); }

/// With a power of two for a scale, multiplying by 1 / scale (ATen) and dividing by it (octet) are the same.
TEST(FakeQuantize, EqualsAtenForPowersOfTwo) {
  for (const QParams& q : kRanges) {
    const at::Tensor x = values(q);
    const Outcome ours = run(x, [&](const at::Tensor& t) { return fake_quantize(t, q); });
    const Outcome aten = run(x, [&](const at::Tensor& t) {
      return at::fake_quantize_per_tensor_affine(t, q.scale, q.zero_point, q.quant_min, q.quant_max);
    });
    EXPECT_TRUE(at::equal(ours.y, aten.y));
    EXPECT_TRUE(at::equal(ours.gradient, aten.gradient));
    EXPECT_GT((ours.gradient == 0).sum().item<int64_t>(), 100);
    EXPECT_GT((ours.gradient != 0).sum().item<int64_t>(), 100);
  }
}

/// Values, masks and gradients are the same however many threads share them.
TEST(FakeQuantize, ThreadsShareTheValues) {
  const QParams q{0.0371f, 101, 0, 255};
  const at::Tensor x = test::values(q, {4, 8, 64, 64});
  const std::vector<float> scales = {0.01f, 0.02f, 0.03f, 0.04f};
  const auto tensor = [&](const at::Tensor& t) { return fake_quantize(t, q); };
  const auto channels = [&](const at::Tensor& t) { return fake_quantize_weight(t, scales, {}); };
  const int before = at::get_num_threads();
  std::vector<Outcome> outcomes[2];
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    outcomes[0].push_back(run(x, tensor));
    outcomes[1].push_back(run(x, channels));
  }
  at::set_num_threads(before);
  for (const auto& of_threads : outcomes) {
    for (const Outcome& outcome : of_threads) {
      EXPECT_TRUE(at::equal(outcome.y, of_threads[0].y));
      EXPECT_TRUE(at::equal(outcome.gradient, of_threads[0].gradient));
    }
    EXPECT_GT((of_threads[0].gradient == 0).sum().item<int64_t>(), 100);
  }
}

TEST(FakeQuantize, HalfIsFloatRounded) {
  for (const QParams& q : kRanges) {
    const at::Tensor x = values(q).to(at::kHalf);
    const Outcome half = run(x, [&](const at::Tensor& t) { return fake_quantize(t, q); });
    EXPECT_EQ(half.y.scalar_type(), at::kHalf);
    EXPECT_TRUE(at::equal(half.y, fake_quantize(x.to(at::kFloat), q).to(at::kHalf)));
    const at::Tensor mask =
        run(x.to(at::kFloat), [&](const at::Tensor& t) { return fake_quantize(t, q); }).gradient != 0;
    EXPECT_TRUE(at::equal(half.gradient != 0, mask));
  }
}

/// ATen multiplies by the rounded 1 / scale: next to a rounding boundary its code may be the neighbour of ours, and
/// nowhere else.
TEST(FakeQuantize, DiffersFromAtenOnlyNextToHalfSteps) {
  const QParams q{0.0371f, 101, 0, 255};
  const at::Tensor x = values(q);
  const Outcome ours = run(x, [&](const at::Tensor& t) { return fake_quantize(t, q); });
  const Outcome aten = run(x, [&](const at::Tensor& t) {
    return at::fake_quantize_per_tensor_affine(t, q.scale, q.zero_point, q.quant_min, q.quant_max);
  });
  const float *value = x.const_data_ptr<float>(), *a = ours.y.const_data_ptr<float>(),
              *b = aten.y.const_data_ptr<float>();
  int64_t differing = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    ASSERT_EQ(a[i], dequantize(quantize(value[i], q), q)) << value[i];
    if (a[i] == b[i]) continue;
    ++differing;
    const double steps = static_cast<double>(value[i]) / q.scale;
    EXPECT_NEAR(std::abs(steps - std::floor(steps) - 0.5), 0, 1e-6 * std::abs(steps) + 1e-6) << value[i];
    EXPECT_NEAR(std::abs(a[i] - b[i]), q.scale, 1e-5f);
  }
  RecordProperty("differing", static_cast<int>(differing));
  EXPECT_GT(differing, 0);  // the grid of half steps is in x: the two definitions do differ
  EXPECT_LT(differing, 700);
}

TEST(FakeQuantize, WeightsEqualAtenPerChannel) {
  at::manual_seed(2);
  const std::vector<float> scales = {0.5f, 0.0078125f, 0.125f, 0.03125f, 2.0f};
  const at::Tensor scale = at::tensor(scales), zero = at::zeros({5}, at::kInt);
  for (const WeightCodes codes : {WeightCodes{}, WeightCodes{-7, 7}, WeightCodes{-2, 1}}) {
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const at::Tensor x = at::randn({5, 7, 3, 3}).mul_(3).contiguous(format);
      const Outcome ours = run(x, [&](const at::Tensor& t) { return fake_quantize_weight(t, scales, codes); });
      const Outcome aten = run(x, [&](const at::Tensor& t) {
        return at::fake_quantize_per_channel_affine(t, scale, zero, 0, codes.lowest, codes.highest);
      });
      EXPECT_TRUE(at::equal(ours.y, aten.y));
      EXPECT_TRUE(at::equal(ours.gradient, aten.gradient));
      EXPECT_TRUE(ours.y.is_contiguous(format));
      EXPECT_GT((ours.gradient == 0).sum().item<int64_t>(), 10);
    }
  }
}

/// ATen as the oracle of weights ends at powers of two; here it is the rule itself, and the gradient at the clip edges.
TEST(FakeQuantize, WeightsOfOddScalesFollowTheRule) {
  const std::vector<float> scales = {0.0371f, 0.1f, 1.0f / 3, 3.3e-3f, 1.7f};
  for (const WeightCodes codes : {WeightCodes{}, WeightCodes{-7, 7}, WeightCodes{-2, 1}, WeightCodes{-1, 1}}) {
    at::Tensor x = at::empty({5, 8, 20, 20});
    float* value = x.mutable_data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {  // half steps from beyond one end to beyond the other, and next to them
      const float scale = scales[i / 3200];
      const int64_t step = i % 3200;
      const float half_steps = static_cast<float>(step / 4 % (2 * (codes.highest - codes.lowest) + 5));
      value[i] = scale * (static_cast<float>(codes.lowest) - 1 + half_steps / 2);
      if (step % 4 > 1) value[i] = std::nextafter(value[i], step % 4 == 2 ? -1e30f : 1e30f);
    }
    const Outcome ours = run(x, [&](const at::Tensor& t) { return fake_quantize_weight(t, scales, codes); });
    const float *y = ours.y.const_data_ptr<float>(), *gradient = ours.gradient.const_data_ptr<float>();
    int64_t clipped = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const QParams q = codes.qparams(scales[i / 3200]);
      const float unclamped = std::rint(value[i] / q.scale);
      const bool passes = unclamped >= codes.lowest && unclamped <= codes.highest;
      ASSERT_EQ(y[i], dequantize(quantize(value[i], q), q)) << value[i];
      ASSERT_EQ(gradient[i], passes ? static_cast<float>(i + 1) : 0.0f) << value[i] << " / " << q.scale;
      clipped += !passes;
    }
    EXPECT_GT(clipped, 20);
    EXPECT_LT(clipped, x.numel() - 20);
  }
}

/// The straight-through gradient is the slope over whole steps: 1 inside the range, 0 outside.
TEST(FakeQuantize, GradientIsTheSlopeOverWholeSteps) {
  for (const QParams& q : kRanges) {
    const at::Tensor x = values(q).add(q.scale * 0.1f);  // off the boundaries
    const at::Tensor leaf = x.clone().requires_grad_(true);
    fake_quantize(leaf, q).sum().backward();
    const at::Tensor slope = (fake_quantize(x + q.scale, q) - fake_quantize(x - q.scale, q)) / (2 * q.scale);
    const at::Tensor code = at::round(x / q.scale) + q.zero_point;
    const at::Tensor at_bound = (code - q.quant_min).abs().le(1).logical_or((code - q.quant_max).abs().le(1));
    const at::Tensor off = (slope - leaf.grad()).abs().gt(1e-3).logical_and(at_bound.logical_not());
    EXPECT_EQ(off.sum().item<int64_t>(), 0);
    EXPECT_GT(at_bound.logical_not().sum().item<int64_t>(), 1000);
  }
}

TEST(FakeQuantize, BFloat16RoundsTheFloatResult) {
  for (const QParams& q : kRanges) {
    const at::Tensor x = values(q).to(at::kBFloat16);
    const Outcome narrow = run(x, [&](const at::Tensor& t) { return fake_quantize(t, q); });
    const Outcome wide = run(x.to(at::kFloat), [&](const at::Tensor& t) { return fake_quantize(t, q); });
    EXPECT_EQ(narrow.y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(narrow.y, wide.y.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(narrow.gradient != 0, wide.gradient != 0));
  }
}

TEST(FakeQuantize, AnyLayout) {
  const QParams q = kRanges[1];
  const at::Tensor x = values(q);
  const at::Tensor expected = fake_quantize(x, q);
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  const Outcome of_last = run(last, [&](const at::Tensor& t) { return fake_quantize(t, q); });
  EXPECT_TRUE(at::equal(of_last.y, expected));
  EXPECT_TRUE(of_last.y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(fake_quantize(x.transpose(1, 3), q), expected.transpose(1, 3)));
  const at::Tensor part = x.slice(3, 1, 300, 3);  // memory with gaps
  EXPECT_TRUE(at::equal(fake_quantize(part, q), expected.slice(3, 1, 300, 3)));
  // The gradient of a sum is one expanded number; that of a layout change has other strides.
  const at::Tensor leaf = last.detach().clone().requires_grad_(true);
  fake_quantize(leaf, q).contiguous().sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), (of_last.gradient != 0).to(at::kFloat)));
}

/// Gradients of activations at both ends of the codes, with scales that are no powers of two.
TEST(FakeQuantize, GradientAtTheClipEdgesOfOddScales) {
  for (const QParams& q : {QParams{0.0371f, 101, 0, 255}, QParams{0.1f, 0, -8, 7}, QParams{1.0f / 3, 1, 0, 3}}) {
    std::vector<float> values;
    for (const int code : {q.quant_min, q.quant_max}) {
      const double out = code == q.quant_min ? -1 : 1;
      const double centre = q.scale * static_cast<double>(code - q.zero_point);
      for (const double steps : {-0.5, 0.0, 0.25, 0.49, 0.51, 1.0, 100.0})
        values.push_back(static_cast<float>(centre + out * steps * q.scale));
    }
    const at::Tensor x = at::tensor(values);
    const Outcome outcome = run(x, [&](const at::Tensor& t) { return fake_quantize(t, q); });
    const std::vector<bool> passes = {true, true, true, true, false, false, false};
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(outcome.gradient[i].item<float>(), passes[i % 7] ? static_cast<float>(i + 1) : 0.0f) << values[i];
    }
  }
}

TEST(FakeQuantize, RefusesOtherTypes) {
  EXPECT_THROW(fake_quantize(at::zeros({3}, at::kDouble), kRanges[0]), Error);
  EXPECT_THROW(fake_quantize_weight(at::zeros({3, 2}), {1.0f}, {}), Error);
}

}  // namespace
}  // namespace octet
