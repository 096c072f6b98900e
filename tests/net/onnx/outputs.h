// SPDX-License-Identifier: Apache-2.0
// What imported networks compute.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/train/model/model.h"
#include "tests/net/onnx/imported.h"

namespace octet::test {

inline at::Tensor tensor(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  return at::from_blob(const_cast<float*>(values.data()), shape, at::kFloat).clone();
}

/// What the imported network gives for x.
inline at::Tensor outputs(const ImportedNetwork& network, const at::Tensor& x, const WalkMode& mode = {}) {
  Weights weights;
  for (const auto& [name, data] : network.weights.tensors) weights[name] = tensor(to_float(data), data.shape);
  const at::NoGradGuard no_grad;
  return walk(network.graph, weights, x, mode);
}

inline at::Tensor images(int64_t channels, int64_t height, int64_t width) {
  return at::rand({2, channels, height, width}) * 4 - 2;
}

/// Equal up to the rounding of sums of another order.
inline void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.numel(), expected.numel());
  const at::Tensor difference = (found.reshape({-1}) - expected.reshape({-1})).abs().max();
  EXPECT_LT(difference.item<float>(), 1e-5f * std::max(1.0f, expected.abs().max().item<float>()));
}

}  // namespace octet::test
