// Functions of one value as ONNX nodes.
#pragma once

#include <optional>
#include <string>

#include "src/graph/function.h"
#include "src/onnx/writer.h"

namespace octet {

/// What curve_text() wrote; nothing for any other text.
std::optional<Curve> read_curve(const std::string& text);

/// Nodes that compute the function of x in reals; the last is called `name`. HardSwish came with opset 14, Gelu with
/// 20: before, they are written in pieces.
std::string write_curve(OnnxWriter& writer, const Curve& curve, const std::string& name, const std::string& x);

}  // namespace octet
