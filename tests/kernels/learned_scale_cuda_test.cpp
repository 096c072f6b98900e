// SPDX-License-Identifier: Apache-2.0
// The passes that a learned scale adds to, without LibTorch: values, bits and masked gradients stay what they are, the
// scale's gradient is near the CPU kernel's sum and the same each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/training/fake_quantize.h"
#include "kernels/training/learned_range.h"
#include "kernels/training/weights.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

constexpr QParams kLearnedRanges[] = {
    {0.05f, 0, -128, 127}, {0.03f, 113, 0, 255}, {0.4f, 0, -2, 1}, {1.0f / 3, 7, 0, 15}};
constexpr long kImage = 500;  // values, as scale_gradient_factor takes them

std::vector<float> noise(size_t count, float mean) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// The CPU kernel's gradient of values after the activation.
double expected(std::vector<float> x, const std::vector<float>& dy, const Clamp& clamp, const QParams& q) {
  for (float& value : x) value = clamp(value);
  return range_gradient(x.data(), dy.data(), x.size(), RangeRule::lsq, q).value *
         scale_gradient_factor(kImage, q.quant_max, q.zero_point);
}

/// What packing slopes (half a unit each) and adding up floats may change.
double tolerance(const std::vector<float>& dy, const QParams& q) {
  const double largest = std::max(q.quant_max - q.zero_point, q.zero_point - q.quant_min);
  double sum = 0;
  for (const float gradient : dy) sum += std::fabs(gradient);
  return sum * (8e-6 + 1e-6 * largest) * scale_gradient_factor(kImage, q.quant_max, q.zero_point);
}

struct Pass {
  std::vector<uint8_t> dx;
  std::vector<float> dscale, dbias;
  bool operator==(const Pass&) const = default;
};

/// Forward with slopes; `q`'s scale comes from device memory and not from the qparams.
struct Forward {
  Forward(const std::vector<float>& values, ValueType type, const Clamp& clamp, const QParams& q)
      : x(test::narrowed(values, type)),
        y(test::narrowed(values, type)),
        bits(std::vector<uint8_t>((values.size() + 7) / 8)),
        slopes(std::vector<int16_t>(values.size())),
        scale(std::vector<float>{q.scale}) {
    QParams other = q;
    other.scale = 123;
    cuda_fake_quantize({.x = x.data(),
                        .y = y.data(),
                        .bits = bits.data(),
                        .count = static_cast<long>(values.size()),
                        .type = type,
                        .activation = clamp,
                        .qparams = other,
                        .learned = {.value = scale.data()},
                        .slopes = slopes.data()},
                       nullptr);
  }
  DeviceArray<uint8_t> x, y, bits;
  DeviceArray<int16_t> slopes;
  DeviceArray<float> scale;
};

Pass backward(const Forward& forward, const std::vector<uint8_t>& gradient, ValueType type, const QParams& q) {
  const long count = static_cast<long>(gradient.size() / test::bytes_of(type));
  const DeviceArray<uint8_t> dy(gradient), dx(std::vector<uint8_t>(gradient.size(), 0xcd));
  const DeviceArray<float> parts(std::vector<float>(fake_quantize_backward_parts(count), NAN)), dscale({NAN});
  cuda_fake_quantize_backward({.dy = dy.data(),
                               .bits = forward.bits.data(),
                               .dx = dx.data(),
                               .count = count,
                               .type = type,
                               .scale = {.slopes = forward.slopes.data(),
                                         .parts = parts.data(),
                                         .dscale = dscale.data(),
                                         .values = kImage,
                                         .qparams = q}},
                              nullptr);
  return {dx.read(), dscale.read(), {}};
}

Pass backward_with_bias(const Forward& forward, const std::vector<uint8_t>& gradient, ValueType type, const QParams& q,
                        int channels) {
  const long rows = static_cast<long>(gradient.size() / test::bytes_of(type)) / channels;
  const DeviceArray<uint8_t> dy(gradient), dx(std::vector<uint8_t>(gradient.size(), 0xcd));
  const DeviceArray<float> sums(
      std::vector<float>(static_cast<size_t>(bias_gradient_parts(rows, channels)) * channels));
  const DeviceArray<float> parts(std::vector<float>(bias_gradient_scale_parts(rows, channels), NAN)), dscale({NAN});
  const DeviceArray<float> dbias(std::vector<float>(channels, NAN));
  cuda_bias_gradient({.dy = dy.data(),
                      .bits = forward.bits.data(),
                      .dx = dx.data(),
                      .parts = sums.data(),
                      .dbias = dbias.data(),
                      .rows = rows,
                      .channels = channels,
                      .type = type,
                      .scale = {.slopes = forward.slopes.data(),
                                .parts = parts.data(),
                                .dscale = dscale.data(),
                                .values = kImage,
                                .qparams = q}},
                     nullptr);
  return {dx.read(), dscale.read(), dbias.read()};
}

TEST(LearnedScaleKernelsCuda, GradientIsTheCpuKernels) {
  OCTET_NEEDS_GPU();
  for (const ValueType type : test::kTypes) {
    for (const QParams& q : kLearnedRanges) {
      for (const size_t count : {1u, 9u, 2048u, 70001u}) {
        std::vector<float> values = test::difficult_values(q, 70001);
        values.erase(values.begin(), values.end() - static_cast<long>(count));
        values = test::widened(test::narrowed(values, type), type);
        const std::vector<uint8_t> gradient = test::narrowed(noise(count, 0.3f), type);
        const std::vector<float> dy = test::widened(gradient, type);
        for (const Clamp& clamp : {kNoClamp, kRelu, kRelu6}) {
          const Forward forward(values, type, clamp, q);
          std::vector<float> activated = values, y(count);
          for (float& value : activated) value = clamp(value);
          fake_quantize(activated.data(), count, q, y.data(), nullptr);
          ASSERT_EQ(forward.y.read(), test::narrowed(y, type));
          const Pass got = backward(forward, gradient, type, q);
          ASSERT_NEAR(got.dscale[0], expected(values, dy, clamp, q), tolerance(dy, q))
              << count << " scale " << q.scale << " type " << static_cast<int>(type);
          const Pass again = backward(forward, gradient, type, q);
          EXPECT_EQ(again, got) << "again";
        }
      }
    }
  }
}

/// Bits and values are the CPU kernels', sums near theirs, with and without a bias in the pass.
TEST(LearnedScaleKernelsCuda, OffsetsAreTheCpuKernels) {
  OCTET_NEEDS_GPU();
  constexpr int kChannels = 24;
  constexpr RangeRule rule = RangeRule::lsq_plus;
  for (const QParams& codes : {QParams{0.03f, 113, 0, 255}, QParams{1.0f / 3, 7, 0, 15}, QParams{0.4f, 0, 0, 3}}) {
    const LearnedRange range{rule, codes.scale, -codes.scale * (static_cast<float>(codes.zero_point) + 0.4f)};
    QParams stale = codes;  // scale and zero point come from device memory
    stale.scale = 123;
    stale.zero_point = 1;
    const QParams q = range.qparams(stale);
    const DeviceArray<float> device_value({range.value}), device_offset({range.offset});
    const size_t count = 1000 * kChannels;
    const std::vector<float> values = noise(count, 0.5f), dy = noise(count, 0.3f);
    std::vector<float> y(count), dx(count);
    std::vector<uint8_t> mask(count), bits(count / 8);
    fake_quantize(values.data(), count, q, y.data(), mask.data());
    fake_quantize_backward(dy.data(), mask.data(), count, dx.data());
    for (size_t i = 0; i < count; ++i) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | mask[i] << (i % 8));
    const RangeGradient want = range_gradient(values.data(), dy.data(), count, rule, q);
    const double factor = range_gradient_factor(rule, kImage, q);

    const DeviceArray<float> x(values), device_y(std::vector<float>(count, NAN)), device_dy(dy);
    const DeviceArray<uint8_t> device_bits(std::vector<uint8_t>(count / 8, 0xcd));
    const DeviceArray<int16_t> slopes(std::vector<int16_t>(count, 5));
    cuda_fake_quantize({.x = x.data(),
                        .y = device_y.data(),
                        .bits = device_bits.data(),
                        .count = static_cast<long>(count),
                        .qparams = stale,
                        .learned = {rule, device_value.data(), device_offset.data()},
                        .slopes = slopes.data()},
                       nullptr);
    EXPECT_EQ(device_y.read(), y);
    EXPECT_EQ(device_bits.read(), bits);
    std::vector<float> first;
    for (const bool with_bias : {false, false, true, true}) {
      const DeviceArray<float> device_dx(std::vector<float>(count, NAN)), sums({NAN, NAN});
      const DeviceArray<float> dbias(std::vector<float>(kChannels, NAN)), bias_parts(std::vector<float>(count, NAN));
      const DeviceArray<float> parts(std::vector<float>(2 * count / kChannels, NAN));
      const ScaleGradient scale{.rule = rule,
                                .slopes = slopes.data(),
                                .parts = parts.data(),
                                .dscale = sums.data(),
                                .doffset = sums.data() + 1,
                                .values = kImage,
                                .qparams = stale};
      if (with_bias) {
        cuda_bias_gradient({.dy = device_dy.data(),
                            .bits = device_bits.data(),
                            .dx = device_dx.data(),
                            .parts = bias_parts.data(),
                            .dbias = dbias.data(),
                            .rows = static_cast<long>(count / kChannels),
                            .channels = kChannels,
                            .scale = scale},
                           nullptr);
      } else {
        cuda_fake_quantize_backward({.dy = device_dy.data(),
                                     .bits = device_bits.data(),
                                     .dx = device_dx.data(),
                                     .count = static_cast<long>(count),
                                     .scale = scale},
                                    nullptr);
      }
      EXPECT_EQ(device_dx.read(), dx);
      const std::vector<float> got = sums.read();
      double size = 0;
      for (const float gradient : dy) size += std::fabs(gradient);
      const double bound = size * factor * (8e-6 + 1e-6 * q.quant_max);
      EXPECT_NEAR(got[0], want.value * factor, bound);
      EXPECT_NEAR(got[1], want.offset * factor, bound);
      if (first.empty()) first = got;
      if (!with_bias) {
        EXPECT_EQ(got, first) << "again";
      }
    }
  }
}

TEST(LearnedScaleKernelsCuda, BiasAndScaleInOnePass) {
  OCTET_NEEDS_GPU();
  struct Case {
    int rows, channels;
  };
  for (const Case& size : {Case{5, 3}, {1000, 24}, {40099, 8}, {300, 2048}, {70, 2056}, {129, 2051}}) {
    for (const ValueType type : test::kTypes) {
      const QParams& q = kLearnedRanges[3];
      const size_t count = static_cast<size_t>(size.rows) * size.channels;
      std::vector<float> values = noise(count, 0.5f);
      values = test::widened(test::narrowed(values, type), type);
      const std::vector<uint8_t> gradient = test::narrowed(noise(count, 0.3f), type);
      const Forward forward(values, type, kRelu, q);
      const Pass plain = backward(forward, gradient, type, q);
      const Pass got = backward_with_bias(forward, gradient, type, q, size.channels);
      EXPECT_EQ(got.dx, plain.dx);
      const double bound = tolerance(test::widened(gradient, type), q);
      ASSERT_NEAR(got.dscale[0], expected(values, test::widened(gradient, type), kRelu, q), bound) << size.channels;
      EXPECT_EQ(backward_with_bias(forward, gradient, type, q, size.channels), got) << "again";
    }
  }
}

TEST(LearnedScaleKernelsCuda, EachChannelOfAWeight) {
  OCTET_NEEDS_GPU();
  constexpr int kChannels = 37, kPerChannel = 1153;
  const WeightCodes codes{-8, 7};
  std::vector<float> scales;
  for (int k = 0; k < kChannels; ++k) scales.push_back(0.11f + 0.013f * static_cast<float>(k));
  const std::vector<float> values = noise(static_cast<size_t>(kChannels) * kPerChannel, 0);
  for (const ValueType type : test::kTypes) {
    const std::vector<uint8_t> gradient = test::narrowed(noise(values.size(), 0.3f), type);
    const std::vector<float> dy = test::widened(gradient, type), gains(kChannels, 0.5f);
    const DeviceArray<float> weight(values), scale(scales), gain(gains), dgain(gains);
    const DeviceArray<uint8_t> device_dy(gradient);
    for (const bool has_gain : {false, true}) {
      const auto run = [&] {
        const DeviceArray<float> dx(std::vector<float>(values.size(), NAN)), dscale(std::vector<float>(kChannels, NAN));
        const WeightGradient work{.dy = device_dy.data(),
                                  .dx = dx.data(),
                                  .weight = weight.data(),
                                  .scale = scale.data(),
                                  .gain = has_gain ? gain.data() : nullptr,
                                  .dgain = has_gain ? dgain.data() : nullptr,
                                  .channels = kChannels,
                                  .per_channel = kPerChannel,
                                  .codes = codes};
        cuda_quantize_weights_backward(
            {.rule = ScaleRule::given, .type = type, .scales = scale.data(), .dscales = dscale.data()}, &work, 1,
            nullptr);
        return std::pair(dscale.read(), dx.read());
      };
      const auto [got, dx] = run();
      EXPECT_EQ(run(), std::pair(got, dx)) << "again";
      for (int k = 0; k < kChannels; ++k) {
        const size_t at = static_cast<size_t>(k) * kPerChannel;
        const double factor = scale_gradient_factor(kPerChannel, codes.highest, 0) * (has_gain ? 0.5 : 1);
        const double want = factor * range_gradient(values.data() + at, dy.data() + at, kPerChannel, RangeRule::lsq,
                                                    codes.qparams(scales[k]))
                                         .value;
        ASSERT_NEAR(got[k], want, 1e-5 * kPerChannel * factor) << k;
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
