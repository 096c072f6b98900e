// SPDX-License-Identifier: Apache-2.0
#include "src/quant/curve_scales.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "src/base/error.h"

namespace octet {

std::vector<CurveScale> curve_scales(const Node& node, const FloatParams& params) {
  std::vector<CurveScale> scales(static_cast<size_t>(node.groups));
  if (scales.size() == 1) return scales;
  const std::vector<float>& input = find_parameter(params, node.name + ".input_scale", scales.size());
  const std::vector<float>& output = find_parameter(params, node.name + ".output_scale", scales.size());
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] = {input[c], output[c]};
    for (const float scale : {input[c], output[c]})
      if (!(scale > 0) || !std::isfinite(scale))
        throw promise_error("'" + node.name + "': the scale " + std::to_string(scale) + " of channel " +
                            std::to_string(c) + " is not a positive finite number");
  }
  return scales;
}

std::vector<uint8_t> lookup_tables(const Curve& curve, const std::vector<CurveScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds) {
  std::vector<uint8_t> tables;
  for (const CurveScale& scale : scales) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t code = x.is_signed() ? static_cast<int8_t>(byte) : byte;
      const double real = scale.output * evaluate(curve, scale.input * static_cast<double>(dequantize(code, x)));
      tables.push_back(static_cast<uint8_t>(std::clamp(quantize(static_cast<float>(real), y), bounds.lo, bounds.hi)));
    }
  }
  return tables;
}

}  // namespace octet
