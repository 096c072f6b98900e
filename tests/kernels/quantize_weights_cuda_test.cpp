// SPDX-License-Identifier: Apache-2.0
// Scales and fake-quantized weights of a whole network from one launch equal the CPU's, bit for bit.
#include "kernels/training/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <tuple>

#include "kernels/training/fake_quantize.h"
#include "src/quant/calibrate.h"
#include "src/quant/weight_scales.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

/// A weight [channels, inputs, window] as PyTorch counts it.
struct HostWeight {
  int channels, inputs, window;
  bool channels_last;
  std::vector<float> values;

  int per_channel() const { return inputs * window; }
  /// Values in memory order.
  std::vector<float> memory() const {
    std::vector<float> result(values.size());
    for (int k = 0; k < channels; ++k)
      for (int c = 0; c < inputs; ++c)
        for (int w = 0; w < window; ++w)
          result[k * per_channel() + (channels_last ? w * inputs + c : c * window + w)] =
              values[(k * inputs + c) * window + w];
    return result;
  }
};

HostWeight random_weight(int channels, int inputs, int window, bool channels_last, int seed) {
  HostWeight weight{channels, inputs, window, channels_last, {}};
  std::mt19937 engine(seed);
  std::student_t_distribution<float> tails(3);  // so that shrunk ranges win
  for (int i = 0; i < channels * inputs * window; ++i) weight.values.push_back(0.1f * tails(engine));
  std::fill_n(weight.values.begin(), inputs * window, 0.0f);  // a dead channel
  return weight;
}

/// More than one launch holds, odd sizes, depthwise, linear, both layouts.
std::vector<HostWeight> network() {
  std::vector<HostWeight> weights;
  const int shapes[][3] = {{64, 3, 49}, {16, 16, 9}, {32, 1, 9}, {10, 512, 1}, {7, 5, 3}, {1, 1, 1}, {3, 260, 4}};
  for (int i = 0; i < 84; ++i) {
    const auto& [channels, inputs, window] = shapes[i % 7];
    weights.push_back(random_weight(channels, inputs, window, i % 2 == 1, i));
  }
  return weights;
}

/// Every weight of a network has its own: symmetric and full ranges of some widths.
WeightCodes codes_of(size_t weight) {
  constexpr WeightCodes kCodes[] = {{-127, 127}, {-3, 3}, {-2, 1}, {-8, 7}, {-1, 1}, {-31, 31}};
  return kCodes[weight % std::size(kCodes)];
}

/// Keeps the arrays of some weights on the device.
struct DeviceWeights {
  std::vector<std::unique_ptr<DeviceArray<float>>> weight, scale, gradient;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> quantized;
  DeviceArray<int32_t> not_finite;
  std::vector<WeightTensor> tensors;

  DeviceWeights(const std::vector<HostWeight>& weights, ValueType type)
      : not_finite(std::vector<int32_t>(weights.size(), 0)) {
    for (const HostWeight& w : weights) {
      weight.push_back(std::make_unique<DeviceArray<float>>(w.memory()));
      scale.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(w.channels, -1.0f)));
      quantized.push_back(
          std::make_unique<DeviceArray<uint8_t>>(std::vector<uint8_t>(w.values.size() * test::bytes_of(type), 0xcd)));
      gradient.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(w.values.size(), -1.0f)));
      tensors.push_back({.weight = weight.back()->data(),
                         .quantized = quantized.back()->data(),
                         .scale = scale.back()->data(),
                         .not_finite = not_finite.data() + tensors.size(),
                         .channels = w.channels,
                         .per_channel = w.per_channel(),
                         .channels_last_window = w.channels_last ? w.window : 0,
                         .codes = codes_of(tensors.size())});
    }
  }
};

class QuantizeWeightsCuda : public testing::TestWithParam<std::tuple<ScaleRule, bool>> {};

TEST_P(QuantizeWeightsCuda, EqualsTheCpu) {
  OCTET_NEEDS_GPU();
  const auto [rule, per_tensor] = GetParam();
  const std::vector<HostWeight> weights = network();
  for (const ValueType type : test::kTypes) {
    DeviceWeights device(weights, type);
    const WeightRules rules{rule, per_tensor, type};
    cuda_quantize_weights(rules, device.tensors.data(), static_cast<int>(weights.size()), nullptr);
    std::vector<WeightGradient> gradients;
    for (size_t i = 0; i < weights.size(); ++i) {
      const HostWeight& w = weights[i];
      const auto search = rule == ScaleRule::least_squares ? weight_scales_mse : weight_scales;
      const WeightSpec spec{codes_of(i), per_tensor ? Granularity::per_tensor : Granularity::per_channel};
      const std::vector<float> scales = search(w.values.data(), w.channels, w.per_channel(), spec);
      ASSERT_EQ(device.scale[i]->read(), scales) << i;
      std::vector<float> y(w.values.size());
      std::vector<uint8_t> mask(w.values.size());
      const ChannelQuantization q{scales.data(), scales.size(), static_cast<size_t>(w.per_channel()),
                                  spec.codes.qparams(1.0f)};
      const std::vector<float> memory = w.memory();
      fake_quantize(memory.data(), q, {0, scales.size()}, y.data(), mask.data());
      ASSERT_EQ(device.quantized[i]->read(), test::narrowed(y, type)) << i;
      gradients.push_back({.dy = device.quantized[i]->data(),
                           .dx = device.gradient[i]->data(),
                           .weight = device.weight[i]->data(),
                           .scale = device.scale[i]->data(),
                           .channels = w.channels,
                           .per_channel = w.per_channel(),
                           .codes = spec.codes});
    }
    // The quantized weights serve as gradients.
    cuda_quantize_weights_backward(rules, gradients.data(), static_cast<int>(gradients.size()), nullptr);
    size_t clipped = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const HostWeight& w = weights[i];
      const std::vector<float> scales = device.scale[i]->read(), memory = w.memory();
      std::vector<float> want = test::widened(device.quantized[i]->read(), type);
      for (size_t j = 0; j < want.size(); ++j) {
        const float code = std::rint(memory[j] / scales[j / w.per_channel()]);
        if (code >= codes_of(i).lowest && code <= codes_of(i).highest) continue;
        want[j] = 0;
        ++clipped;
      }
      ASSERT_EQ(device.gradient[i]->read(), want) << i;
    }
    EXPECT_EQ(clipped > 0, rule == ScaleRule::least_squares);
    EXPECT_EQ(device.not_finite.read(), std::vector<int32_t>(weights.size(), 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, QuantizeWeightsCuda,
                         testing::Combine(testing::Values(ScaleRule::reach, ScaleRule::least_squares),
                                          testing::Bool()));

/// Scales and codes do not see the gain; values and gradients are multiplied by it once.
TEST_P(QuantizeWeightsCuda, GainsMultiplyWhatIsQuantized) {
  OCTET_NEEDS_GPU();
  const auto [rule, per_tensor] = GetParam();
  const std::vector<HostWeight> weights = network();
  for (const ValueType type : test::kTypes) {
    const WeightRules rules{rule, per_tensor, type};
    DeviceWeights plain(weights, ValueType::float32), folded(weights, type);
    const WeightRules in_float{rule, per_tensor, ValueType::float32};
    cuda_quantize_weights(in_float, plain.tensors.data(), static_cast<int>(weights.size()), nullptr);
    std::mt19937 engine(6);
    std::normal_distribution<float> normal(0, 1);
    std::vector<std::vector<float>> gain, dy;
    std::vector<std::unique_ptr<DeviceArray<float>>> device_gain, dgain;
    std::vector<std::unique_ptr<DeviceArray<uint8_t>>> device_dy;
    std::vector<WeightGradient> gradients;
    for (size_t i = 0; i < weights.size(); ++i) {
      const HostWeight& w = weights[i];
      gain.emplace_back(w.channels);
      for (float& g : gain.back()) g = normal(engine);
      gain.back()[0] = 0;  // a dead gamma
      dy.emplace_back(w.values.size());
      for (float& d : dy.back()) d = normal(engine);
      dy.back() = test::widened(test::narrowed(dy.back(), type), type);
      device_gain.push_back(std::make_unique<DeviceArray<float>>(gain.back()));
      dgain.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(w.channels, NAN)));
      device_dy.push_back(std::make_unique<DeviceArray<uint8_t>>(test::narrowed(dy.back(), type)));
      const bool has_gain = i % 5 != 4;
      folded.tensors[i].gain = has_gain ? device_gain[i]->data() : nullptr;
      gradients.push_back({.dy = device_dy[i]->data(),
                           .dx = folded.gradient[i]->data(),
                           .weight = folded.weight[i]->data(),
                           .scale = folded.scale[i]->data(),
                           .gain = folded.tensors[i].gain,
                           .dgain = has_gain ? dgain[i]->data() : nullptr,
                           .channels = w.channels,
                           .per_channel = w.per_channel(),
                           .codes = codes_of(i)});
    }
    cuda_quantize_weights(rules, folded.tensors.data(), static_cast<int>(weights.size()), nullptr);
    cuda_quantize_weights_backward(rules, gradients.data(), static_cast<int>(gradients.size()), nullptr);
    for (size_t i = 0; i < weights.size(); ++i) {
      const HostWeight& w = weights[i];
      const bool has_gain = i % 5 != 4;
      const std::vector<float> scales = folded.scale[i]->read(), memory = w.memory();
      ASSERT_EQ(scales, plain.scale[i]->read()) << i;
      const std::vector<float> y = test::widened(plain.quantized[i]->read(), ValueType::float32);
      std::vector<float> product = y, dx = dy[i];
      std::vector<double> sum(w.channels), magnitude(w.channels);
      for (size_t j = 0; j < y.size(); ++j) {
        const size_t k = j / w.per_channel();
        sum[k] += static_cast<double>(dy[i][j]) * y[j];
        magnitude[k] += std::fabs(static_cast<double>(dy[i][j]) * y[j]);
        if (has_gain) product[j] *= gain[i][k];
        if (has_gain) dx[j] *= gain[i][k];
        const float code = std::rint(memory[j] / scales[k]);
        if (code < codes_of(i).lowest || code > codes_of(i).highest) dx[j] = 0;
      }
      ASSERT_EQ(folded.quantized[i]->read(), test::narrowed(product, type)) << i;
      const std::vector<float> got = folded.gradient[i]->read();
      for (size_t j = 0; j < dx.size(); ++j) ASSERT_EQ(got[j], dx[j]) << i << " " << j;
      const std::vector<float> of_gain = dgain[i]->read();
      for (int k = 0; has_gain && k < w.channels; ++k) ASSERT_NEAR(of_gain[k], sum[k], 2e-6 * magnitude[k]) << i;
    }
  }
}

TEST(QuantizeWeightsCudaScales, GivenOnesAreUsed) {
  OCTET_NEEDS_GPU();
  const std::vector<HostWeight> weights{random_weight(3, 4, 9, true, 1)};
  DeviceWeights device(weights, ValueType::float32);
  const std::vector<float> scales{0.5f, 0.01f, 0.001f};
  const DeviceArray<float> given(scales);
  device.tensors[0].scale = given.data();
  cuda_quantize_weights({.rule = ScaleRule::given}, device.tensors.data(), 1, nullptr);
  std::vector<float> want(weights[0].values.size());
  fake_quantize(weights[0].memory().data(), {scales.data(), 3, 36, {1.0f, 0, -127, 127}}, {0, 3}, want.data(), nullptr);
  EXPECT_EQ(device.quantized[0]->read(), test::narrowed(want, ValueType::float32));
  EXPECT_EQ(given.read(), scales);
}

TEST(QuantizeWeightsCudaScales, NamesTheDamagedWeight) {
  OCTET_NEEDS_GPU();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<HostWeight> weights = network();
    weights[9].values.back() = bad;
    weights[79].values.front() = bad;
    DeviceWeights device(weights, ValueType::float16);
    cuda_quantize_weights({.rule = ScaleRule::least_squares, .type = ValueType::float16}, device.tensors.data(),
                          static_cast<int>(weights.size()), nullptr);
    std::vector<int32_t> want(weights.size(), 0);
    want[9] = want[79] = 1;
    EXPECT_EQ(device.not_finite.read(), want);
  }
}

}  // namespace
}  // namespace octet::kernels
