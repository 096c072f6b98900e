// SPDX-License-Identifier: Apache-2.0
// A lookup may have a scale for each channel before its function and one behind it: y = output * f(input * x). Its int8
// node then has a table for each channel. src/quant/equalize_curves.h chooses the scales.
#pragma once

#include <cstdint>
#include <vector>

#include "src/quant/node_constants.h"

namespace octet {

struct CurveScale {
  float input = 1, output = 1;
};

/// Returns the scales of a lookup, one for all channels (which is 1) or one for each. Throws Error(promise) naming the
/// node for one that is not positive and finite.
std::vector<CurveScale> curve_scales(const Node& node, const FloatParams& params);

/// Returns the tables of a lookup with these scales, [256] for each: indexed by the byte that stores the input's code,
/// the byte that stores clamp(quantize(float(y))) of x = dequantize(code). A table has an entry for every byte, also
/// for codes outside the input's range.
std::vector<uint8_t> lookup_tables(const Curve& curve, const std::vector<CurveScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds);

}  // namespace octet
