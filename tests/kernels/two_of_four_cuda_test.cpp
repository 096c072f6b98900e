// SPDX-License-Identifier: Apache-2.0
// 2:4 sparsity on the GPU: the CPU's bits, for more weights than a launch takes.
#include "kernels/training/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

TEST(TwoOfFourCuda, TheCpusBits) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(4);
  std::vector<std::vector<float>> weights;
  std::vector<std::unique_ptr<DeviceArray<float>>> there, kept, gradients;
  std::vector<SparseWeights> keep, decay;
  for (int i = 0; i < 59; ++i) {
    const int channels = 1 + i % 19, inputs = 4 * (1 + i % 33), taps = i % 3 == 0 ? 1 : 9;
    std::vector<float> weight;
    for (int k = 0; k < channels * inputs * taps; ++k)
      weight.push_back(std::rint(std::normal_distribution<float>(0, 3)(random)) / 7);
    there.push_back(std::make_unique<DeviceArray<float>>(weight));
    kept.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(weight.size(), -9.0f)));
    gradients.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(weight.size(), 0.3f)));
    keep.push_back({there.back()->data(), kept.back()->data(), channels, inputs, taps, i % 2 == 0});
    decay.push_back(keep.back());
    decay.back().to = gradients.back()->data();
    weights.push_back(std::move(weight));
  }
  cuda_keep_two_of_four(keep.data(), static_cast<int>(keep.size()), nullptr);
  cuda_decay_pruned(decay.data(), static_cast<int>(decay.size()), 0.01f, nullptr);
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<float> to(weights[i].size(), -9.0f), gradient(weights[i].size(), 0.3f);
    SparseWeights here = keep[i], of_gradient = keep[i];
    here.weight = of_gradient.weight = weights[i].data();
    here.to = to.data();
    of_gradient.to = gradient.data();
    for (int k = 0; k < here.channels; ++k) {
      for (int g = 0; g < here.groups(); ++g) {
        keep_two_of_four(here, k, g);
        decay_pruned(of_gradient, k, g, 0.01f);
      }
    }
    EXPECT_EQ(kept[i]->read(), to) << i;
    EXPECT_EQ(gradients[i]->read(), gradient) << i;
  }
}

}  // namespace
}  // namespace octet::kernels
