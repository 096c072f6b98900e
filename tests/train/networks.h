// SPDX-License-Identifier: Apache-2.0
// Networks with parameters like trained ones, for the tests of src/train.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/net/zoo.h"
#include "src/train/qat/quantized_model.h"
#include "tests/quant/random_plan.h"

namespace octet::test {

ModelSpec family(const std::string& name, int size);  ///< a network of the zoo, for square images of three channels

Graph resnet8();  ///< for images of [3, 32, 32]

/// Returns four random images of [3, 32, 32], channels-last.
at::Tensor random_batch(int seed);

/// Returns small variants of every family of the zoo, with shortcuts and stems of both kinds.
std::vector<ModelSpec> families();

/// Returns a network of operators that no family has: separate activations, adds without a convolution before them,
/// padded average pools, several linears.
ModelSpec other_operators();

/// Returns a network whose logits are the sum of its last convolution and that convolution's input, as its residual.
Graph residual_logits();

/// Returns one convolution, then logits. With large_weights() its sums pass 2^24. It has `groups` of 600 channels; 0:
/// depthwise with a window of 41x41.
Graph large_sums(int groups);
Weights large_weights(const Graph& graph);

/// Returns initial_weights() with BatchNorms of both signs, some gamma = 0, and statistics as after training.
Weights random_weights(const Graph& graph, uint64_t seed);

std::vector<uint8_t> random_images(const Shape& shape, int count, uint64_t seed);

Preprocessing preprocessing_for(const Shape& shape);

/// Fuses, prepares and calibrates on a few random images.
QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec,
                          CalibrationMethod method = CalibrationMethod::minmax, const QuantizerOptions& options = {});

/// Multiplies each scale that learns by a factor in [0.6, 1.5). Returns whether there are any.
bool learn_at_random(const QuantizedModel& model, uint64_t seed);

/// Returns every node's bytes from one run, and the network's outputs under -1, -2 and so on.
std::map<int, std::string> all_bytes(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images,
                                     int batch);

}  // namespace octet::test
