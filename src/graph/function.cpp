#include "src/graph/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace octet {

std::optional<Function> find_function(std::string_view name) {
  for (const Named<Function>& row : kFunctions) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

std::string curve_text(const Curve& curve) {
  const auto row = std::find_if(kFunctions.begin(), kFunctions.end(),
                                [&](const Named<Function>& r) { return r.value == curve.function; });
  const std::string name(row->name);
  return curve.function == Function::leaky_relu ? fmt::format("{} {}", name, curve.slope) : name;
}

double evaluate(const Curve& curve, double x) {
  const auto hard_sigmoid = [](double v) { return std::clamp(v + 3, 0.0, 6.0) / 6; };
  switch (curve.function) {
    case Function::silu:
      return x / (1 + std::exp(-x));
    case Function::hard_swish:
      return x * hard_sigmoid(x);
    case Function::hard_sigmoid:
      return hard_sigmoid(x);
    case Function::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::tanh:
      return std::tanh(x);
    case Function::gelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Function::leaky_relu:
      return x < 0 ? x * static_cast<double>(curve.slope) : x;
  }
  return x;
}

bool never_negative(Function function) { return function == Function::sigmoid || function == Function::hard_sigmoid; }

}  // namespace octet
