#include "src/onnx/qdq_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/common/error.h"
#include "src/graph/output_shape.h"
#include "src/onnx/curves.h"
#include "src/quant/softmax_table.h"

namespace octet {
namespace {

[[noreturn]] void fail(const Int8Node& node, const std::string& what) {
  throw usage_error(fmt::format("export: node '{}' ({}): {}", node.name, int8_op_name(node.op), what));
}

void check_profile(const Int8Node& node, OnnxProfile profile) {
  if (profile != OnnxProfile::tensorrt || node.float_output) return;
  if (!node.out.is_signed() || node.out.zero_point != 0)
    fail(node,
         "TensorRT takes symmetric int8 activations; train with quant.activation symmetric_s8, or choose "
         "another --profile");
}

/// In QDQ form the scales of two edges say by what factor a value changes between them.
void check_multipliers(const Int8Graph& graph, const Int8Node& node) {
  if (node.op == Int8Op::input) return;
  const auto input_of = [&](size_t i) -> const Int8Node& { return graph.nodes[static_cast<size_t>(node.inputs[i])]; };
  const bool weighted = node.op == Int8Op::conv2d || node.op == Int8Op::linear;
  const double y_scale = node.float_output ? 1.0 : node.out.scale;
  const double divisor = sum_divisor(shape_attributes(node), input_of(0).shape);
  const auto require = [&](double multiplier, size_t input) {
    const double ratio = input_of(input).out.scale / (y_scale * divisor);
    if (std::abs(multiplier - ratio) > 1e-5 * ratio)
      fail(node, fmt::format("multiplier {} is not the ratio of its edges' scales, {}", multiplier, ratio));
  };
  if (node.op == Int8Op::matmul) {  // any other is a factor of the product
    if (!(node.multiplier[0] > 0)) fail(node, fmt::format("multiplier {} is not positive", node.multiplier[0]));
    return;
  }
  if (node.op == Int8Op::softmax) return require(node.multiplier[0] * input_of(0).out.scale, 0);
  if (node.op == Int8Op::mul) return require(node.multiplier[0] / input_of(1).out.scale, 0);
  for (size_t i = 0; i < node.multiplier.size() && !weighted; ++i) require(node.multiplier[i], i);
  if (weighted && node.inputs.size() == 2) require(node.residual_multiplier, 1);
}

/// Other runtimes compute the function in reals: the table must be its codes, up to rounding.
void check_table(const Int8Graph& graph, const Int8Node& node) {
  if (node.op != Int8Op::lookup) return;
  const std::optional<Curve> curve = read_curve(node.function);
  if (!curve) fail(node, fmt::format("its table was made from '{}', which has no form in ONNX here", node.function));
  const QParams& in = graph.nodes[static_cast<size_t>(node.inputs[0])].out;
  for (int32_t code = in.quant_min; code <= in.quant_max; ++code) {
    const auto value = static_cast<float>(evaluate(*curve, dequantize(code, in)));
    const int32_t expected = std::clamp(quantize(value, node.out), node.clamp_min, node.clamp_max);
    const uint8_t byte = node.table[static_cast<uint8_t>(code)];
    const int32_t found = node.out.is_signed() ? static_cast<int8_t>(byte) : byte;
    if (std::abs(found - expected) > 1)
      fail(node, fmt::format("gives {} for code {}; its function {} gives {}", found, code, node.function, expected));
  }
}

/// So of a softmax: its exponentials are those of its input's scale, up to rounding.
void check_exponentials(const Int8Graph& graph, const Int8Node& node) {
  if (node.op != Int8Op::softmax) return;
  const std::vector<int32_t> expected = softmax_table(graph.nodes[static_cast<size_t>(node.inputs[0])].out);
  for (size_t d = 0; d < expected.size(); ++d)
    if (std::abs(node.exponentials[d] - expected[d]) > 1)
      fail(node, fmt::format("exponential {} is {}; its input's scale gives {}", d, node.exponentials[d], expected[d]));
}

}  // namespace

void check_expressible(const Int8Graph& graph, const Int8Node& node, OnnxProfile profile) {
  check_profile(node, profile);
  check_multipliers(graph, node);
  check_table(graph, node);
  check_exponentials(graph, node);
}

}  // namespace octet
