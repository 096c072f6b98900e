// SPDX-License-Identifier: Apache-2.0
#include "src/eval/derived_values.h"

#include <algorithm>
#include <numbers>

namespace octet {
namespace {

constexpr double kHalfUlp = 0x1p-24;         ///< half a unit in the last place, relative to the float32
constexpr double kHalfSubnormal = 0x1p-150;  ///< half of the smallest float32
constexpr double kNoise = 1 + 0x1p-20;       ///< both derivations compute in double, with errors far below a float32's
constexpr double kCancelled = 0x1p-49;       ///< error of a sum in double, relative to its terms

/// Returns the codes of all values in [t - within, t + within], where t is in units of the output's scale.
DerivedCodes codes_near(double t, double within, int zero_point, const CodeRange& range) {
  const auto code = [&](double x) {
    return static_cast<int>(
        std::clamp(std::nearbyint(x) + zero_point, static_cast<double>(range.lo), static_cast<double>(range.hi)));
  };
  return {code(t - within), code(t + within)};
}

/// Returns a bound of the function's slope; the steepest is hard_swish with 1.5, unless leaky_relu's is given.
double steepness(const Function& function) { return std::max(1.5, std::fabs(static_cast<double>(function.slope))); }

}  // namespace

DerivedReal rounded_to_float(double value, int times) {
  return {value, times * (std::fabs(value) * kHalfUlp + kHalfSubnormal) * kNoise};
}

LayerChannelConstants layer_constants(const LayerChannel& c) {
  double slope = 1, offset = c.bias, terms = std::fabs(c.bias);
  if (c.batch_norm) {
    const BatchNormChannel& b = *c.batch_norm;
    const double deviation = std::sqrt(b.variance + b.epsilon);
    slope = b.gamma / deviation;
    offset = b.gamma * (c.bias - b.mean) / deviation + b.beta;
    terms = std::fabs(b.gamma) * (std::fabs(c.bias) + std::fabs(b.mean)) / deviation + std::fabs(b.beta);
  }
  LayerChannelConstants result;
  result.multiplier = rounded_to_float(slope * c.weight_scale * c.x_scale / c.y_scale, 2);
  result.multiplier.within += kHalfSubnormal * c.x_scale / c.y_scale;
  result.bias = rounded_to_float(offset / c.y_scale, 2);
  result.bias.within += (kHalfSubnormal + kCancelled * terms) / c.y_scale;
  return result;
}

double function_value(const Function& function, double x) {
  switch (function.kind) {
    case FunctionKind::silu:
      return x / 2 * (1 + std::tanh(x / 2));
    case FunctionKind::hard_swish:
      return x <= -3 ? 0 : x >= 3 ? x : (x * x + 3 * x) / 6;
    case FunctionKind::hard_sigmoid:
      return x <= -3 ? 0 : x >= 3 ? 1 : x / 6 + 0.5;
    case FunctionKind::sigmoid:
      return (1 + std::tanh(x / 2)) / 2;
    case FunctionKind::tanh: {
      const double less = std::expm1(-2 * std::fabs(x));
      return std::copysign(-less / (2 + less), x);
    }
    case FunctionKind::gelu:
      return x / 2 * std::erfc(-x * std::numbers::sqrt2 / 2);
    case FunctionKind::leaky_relu:
      return std::max(x, 0.0) + static_cast<double>(function.slope) * std::min(x, 0.0);
    case FunctionKind::mish: {  // tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1), by e = exp(x) or 1 / e
      const double e = std::exp(-std::fabs(x)), above = x < 0 ? e * (e + 2) : 1 + 2 * e;
      return x * above / (above + 2 * (x < 0 ? 1 : e * e));
    }
    case FunctionKind::softplus: {
      const double e = std::exp2(-std::fabs(x) * std::numbers::log2e);
      return std::max(x, 0.0) + 2 * std::atanh(e / (2 + e));
    }
    case FunctionKind::elu: {  // exp(x) - 1
      const double half = std::tanh(std::min(x, 0.0) / 2);
      return std::max(x, 0.0) + 2 * half / (1 - half);
    }
  }
  return NAN;
}

DerivedCodes table_codes(const Function& function, const FunctionFactors& factors, int byte, const QParams& x,
                         const QParams& y, const CodeRange& range) {
  const int code = x.quant_min < 0 && byte > 127 ? byte - 256 : byte;
  const double input = factors.input * x.scale * (code - x.zero_point);
  const double output = factors.output * function_value(function, input);
  // Rounded to float32 are the input, the function's value, and its quotient by the scale.
  const double slope = factors.output * steepness(function);
  const double within = kHalfUlp * (slope * std::fabs(input) + 2 * std::fabs(output)) * kNoise + kHalfSubnormal;
  return codes_near(output / y.scale, within / y.scale, y.zero_point, range);
}

DerivedCodes pixel_codes(int pixel, double mean, double deviation, const QParams& y) {
  const double share = pixel / 255.0, distance = share - mean;
  // Rounded to float32 are the share, the difference, and two quotients of it.
  const double within = kHalfUlp * (share + 3 * std::fabs(distance)) * kNoise;
  const double unit = deviation * y.scale;
  return codes_near(distance / unit, within / unit, y.zero_point, {y.quant_min, y.quant_max});
}

DerivedCodes exponential_codes(int distance, double scale) {
  const double value = std::exp2(15 - distance * scale * std::numbers::log2e);
  return codes_near(value, value * kCancelled * (4 + distance * scale), 0, {0, 1 << 15});
}

int nearest_code(float value, float scale, int zero_point, const CodeRange& range) {
  const auto quotient = static_cast<float>(static_cast<double>(value) / static_cast<double>(scale));
  return codes_near(quotient, 0, zero_point, range).lowest;
}

}  // namespace octet
