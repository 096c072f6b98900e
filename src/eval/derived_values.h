// SPDX-License-Identifier: Apache-2.0
// The constants of an int8 network by their definitions (docs/FORMAT.md), in double. This file shares no code with
// src/quant, whose functions it checks: where a formula has another form, that one is used.
#pragma once

#include <optional>

#include "kernels/core/quantize.h"
#include "src/net/graph.h"

namespace octet {

/// A real number, and how far from it the float32 that stands for it may lie.
struct DerivedReal {
  double value = 0, within = 0;
};

/// Returns `value` with the error of rounding to float32 `times` times: half a unit in the last place each, plus the
/// noise of two computations in double.
DerivedReal rounded_to_float(double value, int times);

/// BatchNorm with the statistics it has in evaluation: y = gamma (x - mean) / sqrt(variance + epsilon) + beta.
struct BatchNormChannel {
  double gamma = 1, beta = 0, mean = 0, variance = 1, epsilon = 0;
};

/// One output channel of a convolution or linear. `y_scale` is 1 where it gives floats.
struct LayerChannel {
  double x_scale = 1, weight_scale = 1, y_scale = 1, bias = 0;
  std::optional<BatchNormChannel> batch_norm;
};
struct LayerChannelConstants {
  DerivedReal multiplier, bias;
};
LayerChannelConstants layer_constants(const LayerChannel& channel);

/// The codes that a real number may have: one, or two where float32 cannot tell on which side of a border it lies.
struct DerivedCodes {
  int lowest = 0, highest = 0;
};

/// The bounds of a node's codes.
struct CodeRange {
  int lo = 0, hi = 255;
};

/// What a lookup multiplies its input by, and its function's value by.
struct FunctionFactors {
  double input = 1, output = 1;
};

/// Returns the codes that a lookup's table may have for the byte that stores the input's code.
DerivedCodes table_codes(const Function& function, const FunctionFactors& factors, int byte, const QParams& x,
                         const QParams& y, const CodeRange& range);

/// Returns the codes that the network's input may have for a pixel's value in one channel.
DerivedCodes pixel_codes(int pixel, double mean, double deviation, const QParams& y);

/// Returns the values that a softmax's exponential may have: exp(-distance * scale) in units of 1 / 32768.
DerivedCodes exponential_codes(int distance, double scale);

/// Returns rint(value / scale) + zero_point, clamped to the range. The quotient is rounded to float32, so it is exact.
int nearest_code(float value, float scale, int zero_point, const CodeRange& range);

/// Returns f(x), by other formulas than evaluate().
double function_value(const Function& function, double x);

}  // namespace octet
