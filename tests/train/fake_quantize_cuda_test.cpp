// SPDX-License-Identifier: Apache-2.0
// Autograd functions on the GPU: values and gradients are the CPU's on the same tensors, bit for bit.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/quant/calibrate.h"
#include "src/quant/weight_scales.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/fake_quantize_outcome.h"

namespace octet {
namespace {

using test::Outcome;
using test::run;

constexpr QParams kRanges[] = {{0.0625f, 0, -128, 127}, {0.0371f, 101, 0, 255}, {0.25f, 0, 0, 255}, {0.5f, 3, 0, 15}};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};

at::Tensor values(const QParams& q) { return test::values(q, {2, 4, 35, 30}); }

template <class F>
void expect_same(const at::Tensor& x, const F& f) {
  const Outcome cpu = run(x, f), gpu = run(x, f, at::kCUDA);
  EXPECT_EQ(gpu.y.scalar_type(), x.scalar_type());
  EXPECT_EQ(gpu.y.strides(), cpu.y.strides());
  EXPECT_TRUE(at::equal(gpu.y, cpu.y));
  EXPECT_TRUE(at::equal(gpu.gradient, cpu.gradient));
  EXPECT_GT((gpu.gradient == 0).sum().item<int64_t>(), 100);
  EXPECT_GT((gpu.gradient != 0).sum().item<int64_t>(), 100);
}

TEST(FakeQuantizeCuda, EqualsTheCpu) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kRanges) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor x = values(q).to(type);
      const auto f = [&](const at::Tensor& t) { return fake_quantize(t, q); };
      expect_same(x, f);
      expect_same(x.contiguous(at::MemoryFormat::ChannelsLast), f);
      expect_same(x.transpose(1, 3), f);
    }
  }
}

TEST(FakeQuantizeCuda, TakesTensorsWithGapsAndExpandedGradients) {
  OCTET_NEEDS_GPU();
  const QParams q = kRanges[1];
  const at::Tensor x = values(q).cuda(), part = x.slice(3, 1, 29, 3);
  EXPECT_TRUE(at::equal(fake_quantize(part, q), fake_quantize(x, q).slice(3, 1, 29, 3)));
  const at::Tensor leaf = x.contiguous(at::MemoryFormat::ChannelsLast).detach().requires_grad_(true);
  fake_quantize(leaf, q).sum().backward();
  const at::Tensor cpu = values(q).requires_grad_(true);
  fake_quantize(cpu, q).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad().cpu(), cpu.grad()));
}

TEST(FakeQuantizeCuda, ActivationIsPartOfThePass) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kRanges) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor x = values(q).to(type);
      for (const bool six : {false, true}) {
        for (const bool in_place : {false, true}) {
          expect_same(x, [&](const at::Tensor& leaf) {
            const at::Tensor t = leaf * 1;  // no leaf is overwritten
            if (!t.is_cuda()) return fake_quantize(six ? at::hardtanh(t, 0, 6) : at::relu(t), q);
            const at::Tensor y = cuda_fake_quantize(
                t, {.qparams = q, .activation = six ? kernels::kRelu6 : kernels::kRelu, .in_place = in_place});
            EXPECT_EQ(y.data_ptr() == t.data_ptr(), in_place);
            return y;
          });
        }
      }
    }
  }
}

struct Sum {
  at::Tensor x, bias, residual;
};
struct SumOutcome {
  at::Tensor y;
  Sum gradient;
};

/// Runs forward and backward from leaves on that device; undefined tensors stay undefined.
template <class F>
SumOutcome run_sum(const Sum& sum, const F& f, at::Device device) {
  const auto leaf = [&](const at::Tensor& t) {
    return t.defined() ? t.detach().to(device).clone().requires_grad_(true) : t;
  };
  const Sum leaves{leaf(sum.x), leaf(sum.bias), leaf(sum.residual)};
  const at::Tensor y = f(leaves);
  y.backward(at::arange(1, y.numel() + 1, at::kFloat).cos().view(y.sizes()).to(device, y.scalar_type()));
  const auto gradient = [](const at::Tensor& t) { return t.defined() ? t.grad().cpu() : t; };
  return {y.detach().cpu(), {gradient(leaves.x), gradient(leaves.bias), gradient(leaves.residual)}};
}

TEST(FakeQuantizeCuda, BiasAndResidualArePartOfThePass) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kRanges) {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t channels : {24, 35}) {
        for (const at::MemoryFormat format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
          for (const int parts : {1, 2, 3}) {  // bias, residual, both
            at::manual_seed(12);
            const std::vector<int64_t> shape{2, channels, 13, 7};
            const auto noise = [&](at::IntArrayRef sizes) { return at::randn(sizes) * (40 * q.scale); };
            Sum sum{test::values(q, shape).to(type).contiguous(format), {}, {}};
            if ((parts & 1) != 0) sum.bias = noise({channels});
            if ((parts & 2) != 0) sum.residual = noise(shape).to(type).contiguous(format);
            const SumOutcome cpu = run_sum(
                sum,
                [&](const Sum& s) {
                  at::Tensor t = s.x.to(at::kFloat);
                  if (s.bias.defined()) t = t + s.bias.view({1, -1, 1, 1});
                  if (s.residual.defined()) t = t + s.residual.to(at::kFloat);
                  return fake_quantize(at::relu(t), q).to(type);
                },
                at::kCPU);
            for (const bool in_place : {false, true}) {
              const SumOutcome gpu = run_sum(
                  sum,
                  [&](const Sum& s) {
                    const at::Tensor t = s.x * 1;  // no leaf is overwritten
                    const at::Tensor y = cuda_fake_quantize(
                        t, s.bias, s.residual, {.qparams = q, .activation = kernels::kRelu, .in_place = in_place});
                    EXPECT_EQ(y.data_ptr() == t.data_ptr(), in_place);
                    return y;
                  },
                  at::kCUDA);
              EXPECT_EQ(gpu.y.scalar_type(), type);
              EXPECT_EQ(gpu.y.strides(), sum.x.strides());
              // Other layouts are added up in the tensor's own type.
              if (type != at::kFloat && format == at::MemoryFormat::Contiguous && parts != 2) continue;
              EXPECT_TRUE(at::equal(gpu.y, cpu.y)) << channels << " " << parts;
              EXPECT_TRUE(at::equal(gpu.gradient.x, cpu.gradient.x)) << channels << " " << parts;
              if (sum.residual.defined()) {
                EXPECT_TRUE(at::equal(gpu.gradient.residual, cpu.gradient.residual)) << channels;
              }
              if (sum.bias.defined()) {
                // The CPU's gradient arrives in the type, and is summed in float.
                EXPECT_TRUE(at::allclose(gpu.gradient.bias, cpu.gradient.bias, 1e-4, 1e-4)) << channels;
              }
              EXPECT_GT((gpu.gradient.x != 0).sum().item<int64_t>(), 100);
            }
          }
        }
      }
    }
  }
}

TEST(FakeQuantizeCuda, AnObserverSeesTheSumThatIsQuantized) {
  OCTET_NEEDS_GPU();
  const QParams q = kRanges[1];
  for (const at::ScalarType type : kTypes) {
    for (const bool in_place : {false, true}) {
      const at::Tensor x = values(q).to(type).contiguous(at::MemoryFormat::ChannelsLast).cuda(),
                       bias = at::randn(4).cuda();
      at::Tensor seen;
      TensorQuantizer quantizer{.qparams = q, .activation = kernels::kRelu, .in_place = in_place};
      quantizer.observe = [&](const at::Tensor& sum) { seen = sum.clone(); };
      const at::Tensor y = cuda_fake_quantize(x.clone(), bias, x, quantizer);
      EXPECT_TRUE(at::equal(seen, (x + bias.view({1, -1, 1, 1}).to(at::kFloat)).to(type) + x));
      EXPECT_TRUE(at::equal(y, fake_quantize(at::relu(seen), q)));
      EXPECT_EQ(y.scalar_type(), type);
    }
  }
}

TEST(FakeQuantizeCuda, KeepsNothingWithoutGradients) {
  OCTET_NEEDS_GPU();
  const at::Tensor x = values(kRanges[0]).cuda();
  EXPECT_EQ(fake_quantize(x, kRanges[0]).grad_fn(), nullptr);
  EXPECT_THROW(fake_quantize(x.to(at::kDouble), kRanges[0]), Error);
}

TEST(FakeQuantizeCuda, GivenScalesOfAWeight) {
  OCTET_NEEDS_GPU();
  at::manual_seed(2);
  const std::vector<float> scales = {0.5f, 0.0078f, 0.125f, 0.03f, 2.0f};
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor x = at::randn({5, 7, 3, 3}).mul_(3).contiguous(format);
    const auto f = [&](const at::Tensor& t) { return fake_quantize_weight(t, scales, {}); };
    const Outcome cpu = run(x, f), gpu = run(x, f, at::kCUDA);
    EXPECT_TRUE(at::equal(gpu.y, cpu.y));
    EXPECT_TRUE(at::equal(gpu.gradient, cpu.gradient));
    EXPECT_GT((gpu.gradient == 0).sum().item<int64_t>(), 10);
  }
  EXPECT_THROW(fake_quantize_weight(at::zeros({3, 2}, at::kCUDA), {1.0f}, {}), Error);
}

/// Weights of a convolution, a depthwise one and a linear, in one launch, with the CPU's scales.
TEST(QuantizeWeightsCuda, ValuesAndGradientsEqualTheCpu) {
  OCTET_NEEDS_GPU();
  at::manual_seed(3);
  const std::vector<at::Tensor> weights = {at::randn({16, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
                                           at::randn({24, 1, 3, 3}), at::randn({10, 129})};
  const std::vector<WeightCodes> kCodes = {{-127, 127}, {-2, 1}, {-7, 7}};
  for (const bool mse : {false, true}) {
    for (const at::ScalarType type : kTypes) {
      std::vector<at::Tensor> leaves;
      for (const at::Tensor& w : weights) leaves.push_back(w.cuda().requires_grad_(true));
      WeightQuantizer quantizer;
      quantizer.rules.rule = mse ? kernels::ScaleRule::least_squares : kernels::ScaleRule::reach;
      quantizer.codes = kCodes;
      quantizer.scales = at::empty({16 + 24 + 10}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
      quantizer.not_finite = at::zeros({3}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
      const std::vector<at::Tensor> quantized = cuda_quantize_weights(leaves, quantizer, type);
      at::Tensor sum = at::zeros({}, at::kCUDA);
      for (const at::Tensor& y : quantized)
        sum = sum + (y.to(at::kFloat) * at::arange(1, y.numel() + 1, at::kCUDA).view(y.sizes())).sum();
      sum.backward();
      for (size_t i = 0; i < weights.size(); ++i) {
        const at::Tensor w = weights[i].clone().requires_grad_(true), plain = weights[i].contiguous();
        const int channels = static_cast<int>(w.size(0));
        const auto* data = plain.const_data_ptr<float>();
        const long per_channel = w.numel() / channels;
        const auto scales = mse ? weight_scales_mse(data, channels, per_channel, {kCodes[i]})
                                : weight_scales(data, channels, per_channel, {kCodes[i]});
        const at::Tensor y = fake_quantize_weight(w, scales, kCodes[i]);
        // The gradient arrives in `type`.
        y.backward(at::arange(1, y.numel() + 1, at::kFloat).view(y.sizes()).to(type).to(at::kFloat));
        EXPECT_TRUE(at::equal(quantized[i].cpu(), y.to(type))) << i;
        EXPECT_EQ(quantized[i].strides(), w.strides());
        EXPECT_EQ(leaves[i].grad().scalar_type(), at::kFloat);
        EXPECT_TRUE(at::equal(leaves[i].grad().cpu(), w.grad())) << i;
        EXPECT_EQ((w.grad() == 0).any().item<bool>(), mse);
      }
    }
  }
}

}  // namespace
}  // namespace octet
