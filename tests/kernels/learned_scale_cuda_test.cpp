// The passes that a learned scale adds to, without LibTorch: values, bits and masked gradients stay what they are, the
// scale's gradient is near the CPU kernel's sum and the same each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/fake_quantize/cuda_bias_gradient.h"
#include "kernels/fake_quantize/cuda_fake_quantize.h"
#include "kernels/fake_quantize/cuda_quantize_weights.h"
#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/fake_quantize/learned_scale.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

constexpr QParams kRanges[] = {{0.05f, 0, -128, 127}, {0.03f, 113, 0, 255}, {0.4f, 0, -2, 1}, {1.0f / 3, 7, 0, 15}};
constexpr long kPicture = 500;  // values, as scale_gradient_factor takes them

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
  return scale_gradient(x.data(), dy.data(), x.size(), q) * scale_gradient_factor(kPicture, q.quant_max, q.zero_point);
}

/// What packing slopes (half a unit each) and adding up floats may change.
double tolerance(const std::vector<float>& dy, const QParams& q) {
  const double largest = std::max(q.quant_max - q.zero_point, q.zero_point - q.quant_min);
  double sum = 0;
  for (const float gradient : dy) sum += std::fabs(gradient);
  return sum * (8e-6 + 1e-6 * largest) * scale_gradient_factor(kPicture, q.quant_max, q.zero_point);
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
                        .device_scale = scale.data(),
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
                                         .values = kPicture,
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
                                .values = kPicture,
                                .qparams = q}},
                     nullptr);
  return {dx.read(), dscale.read(), dbias.read()};
}

TEST(LearnedScaleKernelsCuda, GradientIsTheCpuKernels) {
  OCTET_NEEDS_GPU();
  for (const ValueType type : test::kTypes) {
    for (const QParams& q : kRanges) {
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

TEST(LearnedScaleKernelsCuda, BiasAndScaleInOnePass) {
  OCTET_NEEDS_GPU();
  struct Case {
    int rows, channels;
  };
  for (const Case& size : {Case{5, 3}, {1000, 24}, {40099, 8}, {300, 2048}, {70, 2056}, {129, 2051}}) {
    for (const ValueType type : test::kTypes) {
      const QParams& q = kRanges[3];
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
        const double want =
            factor * scale_gradient(values.data() + at, dy.data() + at, kPerChannel, codes.qparams(scales[k]));
        ASSERT_NEAR(got[k], want, 1e-5 * kPerChannel * factor) << k;
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
