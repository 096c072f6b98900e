// SPDX-License-Identifier: Apache-2.0
// Networks and images for the tests of learned rounding.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/avg_pool2d.h>

#include <string>
#include <vector>

#include "tests/train/networks.h"

namespace octet::test {

/// Returns a chain, a residual block of three layers (one of them depthwise) with BatchNorm and `activation`, a chain.
inline Graph residual_network(const std::string& activation) {
  ModelSpec spec = family("graph", 10);
  spec.classes = 4;
  spec.graph = {{"a", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}}},
                {"bn_a", "batch_norm", {}, {}},
                {"r", "relu", {}, {}},
                {"b", "conv2d", {}, {{"out_channels", 12}, {"kernel", 1}}},
                {"bn_b", "batch_norm", {}, {}},
                {"f_b", activation, {}, {}},
                {"c", "conv2d", {}, {{"out_channels", 12}, {"kernel", 3}, {"pad", 1}, {"groups", 12}}},
                {"f_c", activation, {}, {}},
                {"d", "conv2d", {}, {{"out_channels", 8}, {"kernel", 1}}},
                {"bn_d", "batch_norm", {}, {}},
                {"s", "add", {"bn_d", "r"}, {}},
                {"q", "relu", {}, {}},
                {"e", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}, {"stride", 2}}},
                {"f", "flatten", {}, {}},
                {"l", "linear", {}, {{"out_channels", 4}}}};
  return build_model(spec);
}

/// A network, and how it is quantized.
struct RoundedCase {
  Graph graph;
  QuantSpec quant;
  WeightCalibrator weights;
};

/// Returns smooth images, where weights of one channel can compensate each other; for noise rounding to nearest is
/// best.
inline at::Tensor input_images(const Shape& shape, int count) {
  const Preprocessing p = preprocessing_for(shape);
  const std::vector<uint8_t> images = random_images(shape, count, 5);
  return at::avg_pool2d(images_to_tensor({images.data(), count, shape}, p.mean, p.std), 5, 1, 2) * 4;
}

/// Returns the codes of each layer's weights.
inline std::vector<std::vector<int8_t>> codes(const QuantizedModel& model) {
  std::vector<std::vector<int8_t>> all;
  for (const Int8Node& node : model.convert(preprocessing_for(model.prepared().graph.nodes[0].shape), {}).nodes)
    if (!node.weight.empty()) all.push_back(node.weight);
  return all;
}

}  // namespace octet::test
