// Functions of one value: what a lookup computes. The float network calls them, the quantized one has a table of 256
// codes in their place (src/quant/lookup_table.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "src/common/named.h"

namespace octet {

enum class Function { silu, hard_swish, hard_sigmoid, sigmoid, tanh, gelu, leaky_relu };

/// As operators of model.graph are named.
inline constexpr std::array<Named<Function>, 7> kFunctions = {{{Function::silu, "silu"},
                                                               {Function::hard_swish, "hard_swish"},
                                                               {Function::hard_sigmoid, "hard_sigmoid"},
                                                               {Function::sigmoid, "sigmoid"},
                                                               {Function::tanh, "tanh"},
                                                               {Function::gelu, "gelu"},
                                                               {Function::leaky_relu, "leaky_relu"}}};

inline constexpr float kLeakySlope = 0.01f;  ///< PyTorch's default

/// A function with its parameter.
struct Curve {
  Function function = Function::silu;
  float slope = kLeakySlope;  ///< of a leaky_relu where x < 0
};

std::optional<Function> find_function(std::string_view name);

/// "silu", "leaky_relu 0.01": for people and exporters.
std::string curve_text(const Curve& curve);

/// f(x) in double; formulas as in PyTorch (gelu with erf).
double evaluate(const Curve& curve, double x);

/// Whether f(x) >= 0 for every x. All functions here give f(x) >= 0 for x >= 0.
bool never_negative(Function function);

}  // namespace octet
