// SPDX-License-Identifier: Apache-2.0
// The gradient of a learned scale compared with its formula, in double.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "src/base/error.h"
#include "src/train/qat/fake_quantize.h"

namespace octet {
namespace {

constexpr float kScales[] = {0.0371f, 0.1f, 1.0f / 3, 1.7f};  // no powers of two: v / s is rounded

/// Returns codes of so many bits: signed about 0, from 0, and with a zero point inside and near an end.
std::vector<QParams> kinds_of(int bits) {
  const int codes = 1 << bits;
  return {{1, 0, -codes / 2, codes / 2 - 1}, {1, 0, 0, codes - 1}, {1, codes / 3, 0, codes - 1}, {1, 1, 0, codes - 1}};
}

/// Returns half steps from beyond one end of the codes to beyond the other, their neighbours, and noise.
at::Tensor scale_values(const QParams& q, at::IntArrayRef shape) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  at::Tensor x = at::empty(shape);
  float* value = x.mutable_data_ptr<float>();
  const int lowest = q.quant_min - q.zero_point - 2, half_steps = 2 * (q.quant_max - q.quant_min + 4);
  for (int64_t i = 0; i < x.numel(); ++i) {
    value[i] = q.scale * (static_cast<float>(lowest) + static_cast<float>(i / 3 % half_steps) / 2);
    if (i % 3 != 0) value[i] = std::nextafter(value[i], i % 3 == 1 ? -1e30f : 1e30f);
    if (i >= 3 * half_steps) value[i] = normal(random) * q.scale * static_cast<float>(q.quant_max - q.quant_min) / 3;
  }
  return x;
}

at::Tensor scale_noise(at::IntArrayRef shape) {
  at::manual_seed(5);
  return at::randn(shape);
}

struct ExpectedScale {
  double gradient = 0, magnitude = 0;  ///< sum, and sum of magnitudes
};

/// LSQ's equations 3 and 5 (arXiv 1902.08153), with z for codes whose zero is elsewhere. x and dy in one order.
ExpectedScale formula(const float* x, const float* dy, int64_t count, const QParams& q, double values_of_image) {
  const double below = q.quant_min - q.zero_point, above = q.quant_max - q.zero_point;
  ExpectedScale sum;
  for (int64_t i = 0; i < count; ++i) {
    const double rounded = std::rint(x[i] / q.scale);  // which code, is decided in float
    double slope = rounded - static_cast<double>(x[i]) / q.scale;
    if (rounded < below) slope = below;
    if (rounded > above) slope = above;
    sum.gradient += dy[i] * slope;
    sum.magnitude += std::abs(dy[i] * slope);
  }
  const double factor = 1 / std::sqrt(values_of_image * std::max(above, 1.0));
  return {sum.gradient * factor, sum.magnitude * factor};
}

struct ScaleOutcome {
  at::Tensor y, dx, dscale;
};

template <class F>
ScaleOutcome run(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& dy, const F& f) {
  const at::Tensor leaf = x.detach().clone().requires_grad_(true);
  const at::Tensor learned = scale.detach().clone().requires_grad_(true);
  const at::Tensor y = f(leaf, learned);
  y.backward(dy);
  return {y.detach(), leaf.grad(), learned.grad()};
}

TEST(LearnedScale, GradientIsTheFormulaAtEveryWidth) {
  for (const int bits : {2, 3, 4, 8}) {
    for (QParams q : kinds_of(bits)) {
      for (const float scale : kScales) {
        q.scale = scale;
        const at::Tensor x = scale_values(q, {4, 8, 25, 23}), dy = scale_noise(x.sizes());
        const ScaleOutcome ours = run(x, at::full({}, scale), dy, [&](const at::Tensor& v, const at::Tensor& s) {
          return learned_fake_quantize(v, {s}, q);
        });
        const ExpectedScale want =
            formula(x.const_data_ptr<float>(), dy.const_data_ptr<float>(), x.numel(), q, 8 * 25 * 23);
        ASSERT_NEAR(ours.dscale.item<float>(), want.gradient, 1e-7 * want.magnitude)
            << bits << " bits, zero " << q.zero_point << ", scale " << scale;
        const at::Tensor plain = x.clone().requires_grad_(true), y = fake_quantize(plain, q);
        y.backward(dy);
        EXPECT_TRUE(at::equal(ours.y, y));
        EXPECT_TRUE(at::equal(ours.dx, plain.grad()));
      }
    }
  }
}

/// One value at a time: inside a code, at its ends, at the clip edges and beyond.
TEST(LearnedScale, SlopesInsideAndOutside) {
  const QParams q{0.1f, 2, 0, 7};  // reals from -0.2 to 0.5
  const auto slope = [&](float x) {
    const ScaleOutcome one =
        run(at::full({1, 1}, x), at::full({}, q.scale), at::ones({1, 1}),
            [&](const at::Tensor& v, const at::Tensor& s) { return learned_fake_quantize(v, {s}, q); });
    return one.dscale.item<double>() * std::sqrt(5.0);  // N 1, Qp 7 - 2
  };
  EXPECT_NEAR(slope(0.0f), 0, 1e-6);
  EXPECT_NEAR(slope(0.13f), -0.3, 1e-5);
  EXPECT_NEAR(slope(0.17f), 0.3, 1e-5);
  EXPECT_NEAR(slope(-0.13f), 0.3, 1e-5);
  EXPECT_NEAR(slope(0.549f), -0.49, 1e-5);  // still the highest code's
  EXPECT_NEAR(slope(0.551f), 5, 1e-5);
  EXPECT_NEAR(slope(100.0f), 5, 1e-5);
  EXPECT_NEAR(slope(-0.249f), 0.49, 1e-5);
  EXPECT_NEAR(slope(-0.251f), -2, 1e-5);
  EXPECT_NEAR(slope(std::nanf("")), -2, 1e-5);  // takes the lowest code
}

TEST(LearnedScale, EachChannelOfAWeightHasItsOwn) {
  const at::Tensor scales = at::tensor({0.0371f, 0.1f, 1.0f / 3, 1.7f, 3.3e-3f});
  for (const WeightCodes codes :
       {WeightCodes{-1, 1}, WeightCodes{-2, 1}, WeightCodes{-4, 3}, WeightCodes{-7, 7}, WeightCodes{-127, 127}}) {
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      at::Tensor x = at::empty({5, 70, 3, 3});
      for (int k = 0; k < 5; ++k) x[k] = scale_values(codes.qparams(scales[k].item<float>()), {70, 3, 3});
      const at::Tensor dy = scale_noise(x.sizes());
      const auto learned = [&](const at::Tensor& v, const at::Tensor& s) {
        return learned_fake_quantize_weight(v, s, codes);
      };
      const ScaleOutcome ours = run(x.contiguous(format), scales, dy, learned);
      for (int k = 0; k < 5; ++k) {
        const at::Tensor row = x[k].contiguous(), gradient = dy[k].contiguous();
        const ExpectedScale want = formula(row.const_data_ptr<float>(), gradient.const_data_ptr<float>(), row.numel(),
                                           codes.qparams(scales[k].item<float>()), 630);
        ASSERT_NEAR(ours.dscale[k].item<float>(), want.gradient, 1e-7 * want.magnitude)
            << int{codes.lowest} << " " << k;
      }
      const at::Tensor plain = x.contiguous(format).clone().requires_grad_(true);
      const float* given = scales.const_data_ptr<float>();
      const at::Tensor y = fake_quantize_weight(plain, {given, given + 5}, codes);
      y.backward(dy);
      EXPECT_TRUE(at::equal(ours.y, y));
      EXPECT_TRUE(at::equal(ours.dx, plain.grad()));
    }
  }
}

TEST(LearnedScale, SameBitsWithAnyThreads) {
  const QParams q{0.0371f, 3, 0, 15};
  const at::Tensor x = scale_values(q, {4, 8, 64, 96}), dy = scale_noise(x.sizes());
  const at::Tensor scales = at::tensor({0.01f, 0.02f, 0.03f, 0.04f});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> tensor, channels;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    tensor.push_back(run(x, at::full({}, q.scale), dy, [&](const at::Tensor& v, const at::Tensor& s) {
                       return learned_fake_quantize(v, {s}, q);
                     }).dscale);
    channels.push_back(run(x, scales, dy, [&](const at::Tensor& v, const at::Tensor& s) {
                         return learned_fake_quantize_weight(v, s, {-7, 7});
                       }).dscale);
  }
  at::set_num_threads(before);
  for (int i = 1; i < 3; ++i) {
    EXPECT_TRUE(at::equal(tensor[i], tensor[0]));
    EXPECT_TRUE(at::equal(channels[i], channels[0]));
  }
}

/// An image twice in the batch, each with half of the mean loss, gives the gradient of one; expanded gradients and
/// other layouts are read correctly.
TEST(LearnedScale, NeitherBatchNorLayoutMatters) {
  const QParams q{0.0371f, 3, 0, 15};
  const at::Tensor x = scale_values(q, {1, 8, 20, 24}), dy = scale_noise(x.sizes());
  const auto gradient = [&](const at::Tensor& v, const at::Tensor& of_y) {
    return run(v, at::full({}, q.scale), of_y,
               [&](const at::Tensor& t, const at::Tensor& s) { return learned_fake_quantize(t, {s}, q); })
        .dscale.item<double>();
  };
  const double once = gradient(x, dy);
  EXPECT_NEAR(gradient(at::cat({x, x}), at::cat({dy, dy}) / 2), once, 1e-5 * std::abs(once));
  EXPECT_NEAR(gradient(x.contiguous(at::MemoryFormat::ChannelsLast), dy), once, 1e-5 * std::abs(once));
  EXPECT_NEAR(gradient(x, at::ones({}).expand(x.sizes())), gradient(x, at::ones(x.sizes())), 1e-12);
}

TEST(LearnedScale, NarrowTypesAreWidenedFirst) {
  const QParams q{0.0371f, 3, 0, 15};
  const auto learned = [&](const at::Tensor& v, const at::Tensor& s) { return learned_fake_quantize(v, {s}, q); };
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = scale_values(q, {2, 8, 20, 24}).to(type), dy = scale_noise(x.sizes()).to(type);
    const ScaleOutcome narrow = run(x, at::full({}, q.scale), dy, learned);
    const ScaleOutcome wide = run(x.to(at::kFloat), at::full({}, q.scale), dy.to(at::kFloat), learned);
    EXPECT_EQ(narrow.dscale.item<float>(), wide.dscale.item<float>());
    EXPECT_TRUE(at::equal(narrow.y, wide.y.to(type)));
    EXPECT_EQ(narrow.dscale.scalar_type(), at::kFloat);
  }
}

TEST(LearnedScale, RefusesScalesThatDoNotFit) {
  EXPECT_THROW(learned_fake_quantize_weight(at::zeros({3, 2}), at::ones({2}), {}), Error);
}

}  // namespace
}  // namespace octet
