// Networks with parameters as trained ones look, for the tests of src/qat.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/graph/zoo.h"
#include "src/qat/quantized_model.h"

namespace octet::test {

/// initial_weights with BatchNorms of both signs, some gamma = 0, and moved statistics.
Weights random_weights(const Graph& graph, uint64_t seed);

std::vector<uint8_t> random_images(const Shape& shape, int count, uint64_t seed);

Preprocessing preprocessing_for(const Shape& shape);

/// Fuses, prepares and calibrates on a few random images.
QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec,
                          CalibrationMethod method = CalibrationMethod::minmax);

/// Every node's bytes from one run, logits included.
std::map<int, std::string> all_bytes(Program& program, const std::vector<uint8_t>& images, int batch, int classes);

}  // namespace octet::test
