// SPDX-License-Identifier: Apache-2.0
// Freezing on the GPU: the CPU's bits over many steps, for more weights than a launch takes, and nothing where a step
// is skipped.
#include "kernels/training/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

struct HostLayer {
  int channels, per_channel;
  WeightCodes codes;
  std::vector<float> weight, scale, frequency, mean;
  std::vector<int8_t> code, direction;
};

struct DeviceLayer {
  DeviceArray<float> weight, scale, frequency, mean;
  DeviceArray<int8_t> code, direction;
  explicit DeviceLayer(const HostLayer& h)
      : weight(h.weight), scale(h.scale), frequency(h.frequency), mean(h.mean), code(h.code), direction(h.direction) {}
};

std::vector<HostLayer> network(std::mt19937& random) {
  std::vector<HostLayer> layers;
  const int shapes[][2] = {{16, 9}, {7, 300}, {1, 1}, {33, 64}};
  const WeightCodes codes[] = {{-1, 1}, {-8, 7}, {-127, 127}};
  for (int i = 0; i < 61; ++i) {
    const auto& [channels, per_channel] = shapes[i % 4];
    HostLayer layer{channels, per_channel, codes[i % 3], {}, {}, {}, {}, {}, {}};
    for (int c = 0; c < channels; ++c) layer.scale.push_back(0.05f + 0.01f * static_cast<float>(c % 7));
    const size_t count = static_cast<size_t>(channels) * per_channel;
    for (size_t k = 0; k < count; ++k) {
      layer.weight.push_back(std::normal_distribution<float>(0, 0.1f)(random));
      const float scale = layer.scale[k / static_cast<size_t>(per_channel)];
      layer.code.push_back(static_cast<int8_t>(quantize(layer.weight[k], layer.codes.qparams(scale))));
    }
    layer.mean.assign(layer.code.begin(), layer.code.end());
    layer.frequency.assign(count, 0);
    layer.direction.assign(count, 0);
    layers.push_back(std::move(layer));
  }
  return layers;
}

TEST(OscillationCuda, TheCpusBitsOverManySteps) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  std::vector<HostLayer> host = network(random);
  std::vector<std::unique_ptr<DeviceLayer>> device;
  std::vector<OscillatingWeights> there;
  for (const HostLayer& h : host) {
    device.push_back(std::make_unique<DeviceLayer>(h));
    const DeviceLayer& d = *device.back();
    there.push_back({d.weight.data(),
                     d.scale.data(),
                     {d.code.data(), d.direction.data(), d.frequency.data(), d.mean.data()},
                     h.channels,
                     h.per_channel,
                     h.codes});
  }
  const DeviceArray<float> threshold({0.03f}), no({0.0f}), yes({1.0f});
  std::uniform_real_distribution<float> move(-0.06f, 0.06f);
  size_t frozen = 0;
  for (int t = 0; t < 60; ++t) {
    for (size_t i = 0; i < host.size(); ++i) {
      HostLayer& h = host[i];
      for (float& w : h.weight) w += move(random);
      for (float& s : h.scale) s *= 1.001f;
      copy_to_device(device[i]->weight.data(), h.weight.data(), h.weight.size() * sizeof(float), nullptr);
      copy_to_device(device[i]->scale.data(), h.scale.data(), h.scale.size() * sizeof(float), nullptr);
    }
    const bool skipped = t % 10 == 9;
    cuda_freeze_oscillating({threshold.data(), (skipped ? yes : no).data()}, there.data(),
                            static_cast<int>(there.size()), nullptr);
    for (size_t i = 0; i < host.size(); ++i) {
      HostLayer& h = host[i];
      const OscillatingWeights here{
          h.weight.data(), h.scale.data(), {h.code.data(), h.direction.data(), h.frequency.data(), h.mean.data()},
          h.channels,      h.per_channel,  h.codes};
      if (!skipped) freeze_oscillating(here, 0, h.channels, 0.03f);
      ASSERT_EQ(device[i]->weight.read(), h.weight) << t << " " << i;
      ASSERT_EQ(device[i]->code.read(), h.code) << t << " " << i;
      ASSERT_EQ(device[i]->direction.read(), h.direction) << t << " " << i;
      ASSERT_EQ(device[i]->frequency.read(), h.frequency) << t << " " << i;
      ASSERT_EQ(device[i]->mean.read(), h.mean) << t << " " << i;
    }
  }
  for (const HostLayer& h : host) frozen += static_cast<size_t>(std::count(h.direction.begin(), h.direction.end(), 2));
  EXPECT_GT(frozen, 1000u);
}

}  // namespace
}  // namespace octet::kernels
