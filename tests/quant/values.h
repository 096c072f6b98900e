// SPDX-License-Identifier: Apache-2.0
// Values to quantize, and how far quantizing moves them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/quantize.h"

namespace octet::test {

inline std::vector<float> normal_values(size_t count, float mean, float deviation, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

/// Mean squared error of quantizing the values themselves.
inline double error_of(const std::vector<float>& values, const QParams& q) {
  double sum = 0;
  for (const float value : values) {
    const double error = static_cast<double>(dequantize(quantize(value, q), q)) - value;
    sum += error * error;
  }
  return sum / static_cast<double>(values.size());
}

}  // namespace octet::test
