// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear of a quantized network (QDQ). What is between a DequantizeLinear and the next
// QuantizeLinear becomes one node of the Int8Graph; the QuantizeLinear gives the qparams of its output (QdqMarks), with
// the bounds of a Relu or Clip before it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "onnx.pb.h"
#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

/// Checks an attribute of a newer opset that must be float32 or absent, because octet computes in float32.
void require_float32(NodeReader& node, const char* attribute, const char* why) {
  const int64_t type = node.integer(attribute, 0);
  if (type != 0 && type != onnx::TensorProto::FLOAT)
    node.refuse(fmt::format("{} {}; {}", attribute, type_name(type), why));
}

void refuse_blocks(NodeReader& node) {
  if (node.integer("block_size", 0) != 0) node.refuse("scales of blocks; expected one a tensor or channel");
}

/// Returns the type of the codes that a QuantizeLinear gives: that of its zero point, else output_dtype, else uint8.
int type_of_codes(NodeReader& node) {
  const int64_t given = node.integer("output_dtype", 0);
  const bool zero = node.has_input(2);
  const int64_t type = zero ? node.constant(2).type : given != 0 ? given : int64_t{onnx::TensorProto::UINT8};
  if (zero && given != 0 && given != type)
    node.invalid(fmt::format("output_dtype {}, and a zero point of type {}", type_name(given), type_name(type)));
  if (type != onnx::TensorProto::INT8 && type != onnx::TensorProto::UINT8)
    node.fail(
        fmt::format("its codes are {}; octet's are int8 or uint8: quantize the network to 8 bits", type_name(type)));
  return static_cast<int>(type);
}

/// Returns the number of scales or zero points, which must be 1 or the size of `shape` along `axis`.
size_t count_along(NodeReader& node, int input, const std::vector<int64_t>& shape, int64_t axis) {
  const Constant& found = node.constant(input);
  const bool one = found.elements() == 1;
  const bool each = found.shape.size() == 1 && axis >= 0 && axis < static_cast<int64_t>(shape.size()) &&
                    found.shape[0] == shape[static_cast<size_t>(axis)];
  if (!one && !each) {
    node.refuse(fmt::format("input '{}' is {}; expected one number, or one for each index along axis {} of {}",
                            shown_name(node.name_of_input(input)), dims_text(found.shape), axis, dims_text(shape)));
  }
  return found.elements();
}

std::vector<float> read_scales(NodeReader& node, const std::vector<int64_t>& shape, int64_t axis) {
  count_along(node, 1, shape, axis);
  const Constant& found = node.constant(1);
  for (const float scale : found.reals)
    if (!(scale > 0)) node.refuse(fmt::format("scale {}; expected a positive number", scale));
  if (!found.real) node.refuse("its scale is not float32");
  return found.reals;
}

/// Reads the zero point of an activation, by default 0.
int32_t read_zero_point(NodeReader& node) {
  if (!node.has_input(2)) return 0;
  count_along(node, 2, {}, -1);
  if (node.constant(2).real) node.invalid("its zero point is not an integer");
  return static_cast<int32_t>(node.constant(2).integers[0]);
}

/// Reads the qparams of the codes that a QuantizeLinear makes of an activation.
QParams read_qparams(NodeReader& node) {
  const bool is_signed = type_of_codes(node) == onnx::TensorProto::INT8;
  return {.scale = read_scales(node, {}, -1)[0],
          .zero_point = read_zero_point(node),
          .quant_min = is_signed ? -128 : 0,
          .quant_max = is_signed ? 127 : 255};
}

/// Maps the index of an element to that of its scale.
struct Along {
  size_t inner = 1, size = 1;
  size_t operator()(size_t i) const { return size == 1 ? 0 : i / inner % size; }
};

Along along(const std::vector<int64_t>& shape, int64_t axis, size_t count) {
  Along result{1, count};
  for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) result.inner *= static_cast<size_t>(shape[d]);
  return result;
}

/// Converts weights or biases from codes to reals, with their scales, or from reals to codes.
void convert_constant(NodeReader& node, bool to_codes) {
  const Constant& from = node.constant(0);
  const auto rank = static_cast<int64_t>(from.shape.size());
  const int64_t given = node.integer("axis", 1), axis = given < 0 ? given + rank : given;
  if (from.real != to_codes) node.invalid(to_codes ? "of integers" : "of what is no codes");
  const int type = to_codes ? type_of_codes(node) : from.type;
  Constant to;
  to.shape = from.shape;
  to.real = !to_codes;
  to.axis = axis;
  to.scale = read_scales(node, from.shape, axis);
  const size_t zeros = node.has_input(2) ? count_along(node, 2, from.shape, axis) : 0;
  if (zeros != 0 && node.constant(2).real) node.invalid("its zero point is not an integer");
  const std::vector<int64_t> zero = zeros != 0 ? node.constant(2).integers : std::vector<int64_t>{0};
  if (zeros != 0 && node.constant(2).type != type)
    node.invalid(fmt::format("codes of type {}, and a zero point of type {}", type_name(type),
                             type_name(node.constant(2).type)));
  to.type = to_codes ? type : static_cast<int>(onnx::TensorProto::FLOAT);
  const double low = type == onnx::TensorProto::INT8 ? -128 : 0;
  if (zero.size() > 1 && to.scale.size() != zero.size()) node.invalid("as many zero points as scales are expected");
  const Along scale_at = along(from.shape, axis, to.scale.size());
  for (size_t i = 0; i < from.elements(); ++i) {
    const size_t k = scale_at(i);
    const auto offset = static_cast<double>(zero[zero.size() == 1 ? 0 : k]);
    if (to_codes) {
      const double code = std::nearbyint(from.reals[i] / to.scale[k]) + offset;
      to.integers.push_back(static_cast<int64_t>(std::clamp(code, low, low + 255)));
    } else {
      const double real = (static_cast<double>(from.integers[i]) - offset) * to.scale[k];
      if (!(std::abs(real) <= std::numeric_limits<float>::max()))
        node.fail(std::string("gives values beyond float32; ") + kQuantizeByOnnxRuntime);
      to.reals.push_back(static_cast<float>(real));
    }
  }
  if (to_codes) to.scale.clear();
  node.result(node.network().constant(std::move(to)));
}

bool same(const QParams& a, const QParams& b) {
  return a.scale == b.scale && a.zero_point == b.zero_point && a.quant_min == b.quant_min;
}

[[noreturn]] void refuse_quantized(NodeReader& node) {
  node.fail(
      "a quantized network; octet run and bench take it, octet export FILE.onnx --out int8.safetensors makes a "
      "checkpoint of it");
}

}  // namespace

void bound(NodeReader& node, int i, float low, float high) {
  OnnxValue y = node.bounded_input(i);
  y.low = std::max(y.low, low);
  y.high = std::min(y.high, high);
  y.direct = false;
  node.result(std::move(y));
}

std::vector<float> weight_scales(NodeReader& node, int input, int64_t axis, int64_t outputs) {
  const Constant& weights = node.constant(input);
  if (weights.scale.empty()) node.refuse("its weights are no codes; expected a DequantizeLinear of int8 weights");
  if (weights.scale.size() == 1) return std::vector<float>(static_cast<size_t>(outputs), weights.scale[0]);
  if (weights.axis != axis)
    node.refuse(fmt::format("scales of weights along axis {}; expected {}, the outputs", weights.axis, axis));
  return weights.scale;
}

void quantize_linear(NodeReader& node) {
  Network& network = node.network();
  if (network.marks == nullptr) refuse_quantized(node);
  refuse_blocks(node);
  require_float32(node, "precision", "octet divides by the scale in float32");
  node.integer("saturate", 1);  // concerns float8 codes only
  if (node.input(0).constant) return convert_constant(node, true);
  node.integer("axis", 1);
  const bool heads = node.input(0).heads != 0;  // of attention
  OnnxValue y = heads ? node.head_input(0) : node.bounded_input(0);
  const bool factor = heads && y.dequantized && y.factor > 0 && y.shift == 0 && !y.erf;
  if (!factor && !y.plain()) {
    node.refuse(
        "of an activation plus a number, or times one: expected codes' own scale before a number, which is positive");
  }
  const QdqMarks::Edge edge{read_qparams(node), y.low, y.high, y.factor, {}};
  if (heads && y.plain() && y.dequantized &&
      same(network.marks->edges.at(network.node(y).name).qparams, edge.qparams)) {
    y.codes = true;  // the same codes: quantizers write both nodes around each Reshape and Transpose
    return node.result(std::move(y));
  }
  if (y.dequantized) {  // other codes for the same values, or for the values times a number
    std::vector<std::string> names = node.names();
    constexpr std::string_view kOurs = "/QuantizeLinear";
    if (names[0].ends_with(kOurs)) names.insert(names.begin(), names[0].substr(0, names[0].size() - kOurs.size()));
    y.node = network.append({.op = Op::requantize, .inputs = {y.node}}, names).node;
    y.dequantized = false;
    y.factor = 1;
  }
  const auto [place, fresh] = network.marks->edges.emplace(network.node(y).name, edge);
  if (!fresh && (!same(place->second.qparams, edge.qparams) || place->second.low != edge.low ||
                 place->second.high != edge.high || place->second.factor != edge.factor))
    node.refuse("its input is quantized elsewhere in another way; octet has one scale an edge");
  if (!y.pixels_first && !y.channels_last)  // only codes in octet's order
    network.marks->codes.emplace(network.node(y).name, node.names().back());
  y.low = -std::numeric_limits<float>::infinity();
  y.high = std::numeric_limits<float>::infinity();
  y.direct = false;
  y.codes = true;
  node.result(std::move(y));
}

/// A Clip of codes: Brevitas writes it for a narrow range and for codes of fewer bits than their type.
void clip_codes(NodeReader& node) {
  const auto limit = [&](int input) -> std::optional<int64_t> {
    if (!node.has_input(input)) return std::nullopt;
    const Constant& found = node.constant(input);
    if (found.real || found.elements() != 1)
      node.invalid(fmt::format("input '{}' is not one integer", shown_name(node.name_of_input(input))));
    return found.integers[0];
  };
  const std::optional<int64_t> low = limit(1), high = limit(2);
  if (low && high && *low > *high) node.invalid(fmt::format("to {} .. {}: no range", *low, *high));
  OnnxValue y = node.input(0);
  if (y.constant) {
    Constant codes = *y.constant;
    for (int64_t& code : codes.integers) {
      if (low) code = std::max(code, *low);
      if (high) code = std::min(code, *high);
    }
    return node.result(node.network().constant(std::move(codes)));
  }
  const auto as_code = [](int64_t value) { return static_cast<float>(std::clamp<int64_t>(value, -128, 255)); };
  if (low) y.low = std::max(y.low, as_code(*low));
  if (high) y.high = std::min(y.high, as_code(*high));
  auto& names = node.network().marks->codes;
  if (const auto shown = names.find(node.network().node(y).name); shown != names.end())
    shown->second = node.names().back();
  node.result(std::move(y));
}

bool is_shift(NodeReader& node, int constant) {
  const OnnxValue& x = node.input(1 - constant);
  const Constant& found = node.constant(constant);
  const size_t behind = axes_behind_channels(x), rank = found.shape.size();
  if (node.network().marks == nullptr || x.node < 0 || x.heads != 0 || x.groups != 0 || !found.real) return false;
  const int channels = node.network().shape(x).c;
  return found.elements() == static_cast<size_t>(channels) && rank > behind &&
         found.shape[rank - 1 - behind] == channels;
}

/// Some quantizers give the layer before a bias codes of its own, to which the Add then adds. It becomes a depthwise
/// 1x1 convolution. Its weights 1 are the codes 64 of scale 1 / 64, so that biases as int32 codes, as in other
/// runtimes, are fine-grained.
void add_shift(NodeReader& node, int constant) {
  constexpr float kScale = 1.0f / 64;
  const OnnxValue x = node.activation(1 - constant);
  Network& network = node.network();
  const auto count = static_cast<size_t>(network.shape(x).c);
  OnnxValue y =
      scaled_channels(network, x, std::vector<float>(count, 1.0f), node.constant(constant).reals, node.names());
  const std::string name = network.node(y).name;
  network.marks->weight_scales[name] = std::vector<float>(count, kScale);
  network.note(name + ": an Add of a number a channel to codes of another node becomes a depthwise 1x1 convolution");
  node.result(std::move(y));
}

void dequantize_linear(NodeReader& node) {
  Network& network = node.network();
  if (network.marks == nullptr) refuse_quantized(node);
  refuse_blocks(node);
  require_float32(node, "output_dtype", "octet's reals are float32");
  OnnxValue y = node.input(0);
  if (y.constant) return convert_constant(node, false);
  node.integer("axis", 1);
  if (!y.codes) node.refuse("of no codes; expected a QuantizeLinear before it");
  QdqMarks::Edge& edge = network.marks->edges.at(network.node(y).name);
  const QParams& codes = edge.qparams;
  const float scale = read_scales(node, {}, -1)[0];
  const int32_t zero = read_zero_point(node);
  if (scale != codes.scale || zero != codes.zero_point)
    node.refuse(fmt::format("its scale {} and zero point {} are not those of the QuantizeLinear before it, {} and {}",
                            scale, zero, codes.scale, codes.zero_point));
  const std::pair bounds(y.low, y.high);
  if (edge.codes.value_or(bounds) != bounds)
    node.refuse("reads codes that another DequantizeLinear reads with other bounds; octet has one range an edge");
  edge.codes = bounds;
  y.low = -std::numeric_limits<float>::infinity();
  y.high = std::numeric_limits<float>::infinity();
  y.codes = false;
  y.dequantized = true;
  node.result(std::move(y));
}

}  // namespace octet::onnx_rules
