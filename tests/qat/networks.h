// Networks with parameters as trained ones look, for the tests of src/qat.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/graph/zoo.h"
#include "src/qat/quantized_model.h"
#include "tests/quant/random_plan.h"

namespace octet::test {

ModelSpec family(const std::string& name, int size);  ///< of the zoo, with square pictures of three channels

/// Small variants of every family of the zoo, shortcuts and stems of both kinds.
std::vector<ModelSpec> families();

/// Operators that no family has: an activation of its own, adds without a convolution before them, padded average
/// pools, several linears.
ModelSpec other_operators();

/// Logits that are the sum of a last convolution and of what it reads: the convolution takes that as its residual.
Graph residual_logits();

/// One convolution whose sums pass 2^24 once its weights are large_weights(), then logits. `groups` of 600 channels; or
/// 0: depthwise with a window of 41x41.
Graph large_sums(int groups);
Weights large_weights(const Graph& graph);

/// initial_weights with BatchNorms of both signs, some gamma = 0, and moved statistics.
Weights random_weights(const Graph& graph, uint64_t seed);

std::vector<uint8_t> random_images(const Shape& shape, int count, uint64_t seed);

Preprocessing preprocessing_for(const Shape& shape);

/// Fuses, prepares and calibrates on a few random images.
QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec,
                          CalibrationMethod method = CalibrationMethod::minmax, const QuantizerOptions& options = {});

/// Scales that learn, each times a factor in [0.6, 1.5); whether there are any.
bool learn_at_random(const QuantizedModel& model, uint64_t seed);

/// Every node's bytes from one run, and the network's outputs by -1, -2 and so on.
std::map<int, std::string> all_bytes(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images,
                                     int batch);

}  // namespace octet::test
