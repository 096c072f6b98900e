// What the constants of an int8 network are by their definitions (src/graph/README.md), in double. It shares no code
// with src/quant, whose functions it is held against: formulas are written otherwise where there is another form.
#pragma once

#include <optional>

#include "kernels/quantize.h"
#include "src/graph/function.h"

namespace octet {

/// A real number, and how far from it a float32 may lie that stands for it.
struct DerivedReal {
  double value = 0, within = 0;
};

/// `value` where float32 was rounded to `times` on the way: half a unit in the last place each, and the noise of two
/// computations in double.
DerivedReal rounded_to_float(double value, int times);

/// BatchNorm with the statistics it has in evaluation: y = gamma (x - mean) / sqrt(variance + epsilon) + beta.
struct BatchNormChannel {
  double gamma = 1, beta = 0, mean = 0, variance = 1, epsilon = 0;
};

/// One output channel of a convolution or linear; `y_scale` 1 where it gives floats.
struct LayerChannel {
  double x_scale = 1, weight_scale = 1, y_scale = 1, bias = 0;
  std::optional<BatchNormChannel> batch_norm;
};
struct LayerChannelConstants {
  DerivedReal multiplier, bias;
};
LayerChannelConstants layer_constants(const LayerChannel& channel);

/// The codes that a real number may have: one, or two where it lies on the border between them as far as float32 tells.
struct DerivedCodes {
  int lowest = 0, highest = 0;
};

/// Bounds of a node's codes.
struct CodeRange {
  int lo = 0, hi = 255;
};

/// Of an entry of a lookup's table, by the byte that stores the input's code.
DerivedCodes table_codes(const Curve& curve, int byte, const QParams& x, const QParams& y, const CodeRange& range);

/// Of a pixel's value in one channel of the input.
DerivedCodes pixel_codes(int pixel, double mean, double deviation, const QParams& y);

/// Of exp(-distance * scale) in 1 / 32768, a softmax's exponential.
DerivedCodes exponential_codes(int distance, double scale);

/// rint(value / scale) within the range: float32 is a division in double rounded to it, so that this code is exact.
int nearest_code(float value, float scale, int zero_point, const CodeRange& range);

/// f(x), by other forms than evaluate().
double curve_value(const Curve& curve, double x);

}  // namespace octet
