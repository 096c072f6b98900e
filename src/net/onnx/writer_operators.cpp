// SPDX-License-Identifier: Apache-2.0
// How octet's operators are written in ONNX, where the float and the QDQ form write them alike.
#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <numbers>
#include <system_error>

#include "src/base/error.h"
#include "src/net/onnx/writer.h"

namespace octet {
namespace {

std::string hard_sigmoid(OnnxWriter& writer, const std::string& name, const std::string& x) {
  const std::string y = writer.node("HardSigmoid", name, {x});
  writer.real_attribute("alpha", 1.0 / 6);
  writer.real_attribute("beta", 0.5);
  return y;
}

/// x / 2 * (1 + erf(x / sqrt(2)))
std::string gelu(OnnxWriter& writer, const std::string& name, const std::string& x) {
  const auto times = [&](const std::string& stem, const std::string& a, double b) {
    return writer.node("Mul", stem, {a, writer.scalar(stem + "/factor", static_cast<float>(b))});
  };
  const std::string erf = writer.node("Erf", name + "/Erf", {times(name + "/scaled", x, 1 / std::numbers::sqrt2)});
  const std::string gate = writer.node("Add", name + "/Add", {erf, writer.scalar(name + "/one", 1)});
  return writer.node("Mul", name, {times(name + "/half", x, 0.5), gate});
}

/// Before opset 14 there is no HardSwish, before 18 no Mish, before 20 no Gelu: then the function is several nodes, of
/// which the last is called `name`.
std::string lookup(OnnxWriter& writer, const Function& function, const std::string& name, const std::string& x) {
  switch (function.kind) {
    case FunctionKind::silu:
      return writer.node("Mul", name, {x, writer.node("Sigmoid", name + "/Sigmoid", {x})});
    case FunctionKind::hard_swish:
      if (writer.opset() >= 14) return writer.node("HardSwish", name, {x});
      return writer.node("Mul", name, {x, hard_sigmoid(writer, name + "/HardSigmoid", x)});
    case FunctionKind::hard_sigmoid:
      return hard_sigmoid(writer, name, x);
    case FunctionKind::sigmoid:
      return writer.node("Sigmoid", name, {x});
    case FunctionKind::tanh:
      return writer.node("Tanh", name, {x});
    case FunctionKind::gelu:
      return writer.opset() >= 20 ? writer.node("Gelu", name, {x}) : gelu(writer, name, x);
    case FunctionKind::leaky_relu: {
      const std::string y = writer.node("LeakyRelu", name, {x});
      writer.real_attribute("alpha", function.slope);
      return y;
    }
    case FunctionKind::mish: {
      if (writer.opset() >= 18) return writer.node("Mish", name, {x});
      const std::string softplus = writer.node("Softplus", name + "/Softplus", {x});
      return writer.node("Mul", name, {x, writer.node("Tanh", name + "/Tanh", {softplus})});
    }
    case FunctionKind::softplus:
      return writer.node("Softplus", name, {x});
    case FunctionKind::elu:
      return writer.node("Elu", name, {x});
  }
  return x;
}

std::string max_pool(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string y = writer.node("MaxPool", node.name, {x});
  writer.window(node.attributes.window, true);
  return y;
}

std::string avg_pool(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string y = writer.node("AveragePool", node.name, {x});
  writer.window(node.attributes.window, false);
  writer.attribute("count_include_pad", 1);
  return y;
}

std::string concat(OnnxWriter& writer, const std::string& name, const std::vector<std::string>& x) {
  const std::string y = writer.node("Concat", name, x);
  writer.attribute("axis", 1);
  return y;
}

std::string slice(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const int first = node.attributes.first_channel, channels = node.attributes.out_channels;
  return writer.node("Slice", node.name,
                     {x, writer.int64s(node.name + "/starts", {first}),
                      writer.int64s(node.name + "/ends", {first + channels}), writer.int64s(node.name + "/axes", {1})});
}

std::string channel_shuffle(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string& name = node.name;
  const Shape& s = node.shape;
  const int groups = node.attributes.groups;
  const std::string grouped = writer.node("Reshape", name + "/Reshape",
                                          {x, writer.int64s(name + "/groups", {-1, groups, s.c / groups, s.h, s.w})});
  const std::string swapped = writer.node("Transpose", name + "/Transpose", {grouped});
  writer.attribute("perm", {0, 2, 1, 3, 4});
  return writer.node("Reshape", name, {swapped, writer.int64s(name + "/channels", {-1, s.c, s.h, s.w})});
}

std::string depth_to_space(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string y = writer.node("DepthToSpace", node.name, {x});
  writer.attribute("blocksize", node.attributes.factor_h);
  return y;
}

/// Repeats every pixel, or interpolates between the centres of pixels.
std::string resize(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const bool bilinear = node.attributes.op == Op::resize_bilinear;
  const float scales[] = {1, 1, static_cast<float>(node.attributes.factor_h),
                          static_cast<float>(node.attributes.factor_w)};
  const std::string y = writer.node("Resize", node.name, {x, "", writer.floats(node.name + "/scales", {4}, scales)});
  writer.text_attribute("mode", bilinear ? "linear" : "nearest");
  writer.text_attribute("coordinate_transformation_mode", bilinear ? "half_pixel" : "asymmetric");
  if (!bilinear) writer.text_attribute("nearest_mode", "floor");
  return y;
}

/// Takes every stride-th pixel, and adds as many channels of zeros before the others as behind them.
std::string subsample_pad(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
  const std::string& name = node.name;
  const Window& window = node.attributes.window;
  const int64_t side = (node.attributes.out_channels - node.inputs[0].c) / 2;
  const std::string pixels = writer.node(
      "Slice", side > 0 ? name + "/Slice" : name,
      {x, writer.int64s(name + "/starts", {0, 0}), writer.int64s(name + "/ends", {kToTheEnd, kToTheEnd}),
       writer.int64s(name + "/axes", {2, 3}), writer.int64s(name + "/steps", {window.stride_h, window.stride_w})});
  if (side == 0) return pixels;
  return writer.node(
      "Pad", name,
      {pixels, writer.int64s(name + "/pads", {0, side, 0, 0, 0, side, 0, 0}), writer.scalar(name + "/zero", 0)});
}

/// Reshapes an image [N, C, H, W] to [N, heads, C / heads, H * W].
std::string to_heads(OnnxWriter& writer, const std::string& name, const std::string& x, const Shape& s, int heads) {
  return writer.node("Reshape", name,
                     {x, writer.int64s(name + "/shape", {-1, heads, s.c / heads, int64_t{s.h} * s.w})});
}

std::string to_image(OnnxWriter& writer, const std::string& name, const std::string& x, const Shape& s) {
  return writer.node("Reshape", name, {x, writer.int64s(name + "/shape", {-1, s.c, s.h, s.w})});
}

std::string matmul(OnnxWriter& writer, const SharedNode& node, const std::vector<std::string>& x) {
  const std::string& name = node.name;
  const int heads = node.attributes.groups;
  const bool transposed = node.attributes.transposed;
  const auto swapped = [&](const std::string& stem, const std::string& from) {
    const std::string y = writer.node("Transpose", stem, {from});
    writer.attribute("perm", {0, 1, 3, 2});
    return y;
  };
  const std::string left = to_heads(writer, name + "/a", x[0], node.inputs[0], heads);
  const std::string right = to_heads(writer, name + "/b", x[1], node.inputs[1], heads);
  std::string y = transposed ? writer.node("MatMul", name, {swapped(name + "/pixels", left), right})
                             : writer.node("MatMul", name, {right, left});
  if (node.scale != 1) y = writer.node("Mul", name + "/Mul", {y, writer.scalar(name + "/scale", node.scale)});
  if (transposed) y = swapped(name + "/Transpose", y);
  return to_image(writer, name + "/picture", y, node.shape);
}

std::string softmax(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string y = writer.node("Softmax", node.name,
                                    {to_heads(writer, node.name + "/groups", x, node.shape, node.attributes.groups)});
  writer.attribute("axis", 2);
  return to_image(writer, node.name + "/picture", y, node.shape);
}

/// Multiplies a value by one factor for each channel.
std::string by_channel(OnnxWriter& writer, const SharedNode& node, const std::string& name, const std::string& x,
                       const char* parameter, const std::vector<float>& factors) {
  const auto channels = static_cast<int64_t>(factors.size());
  const std::vector<int64_t> shape = node.row ? std::vector<int64_t>{channels} : std::vector<int64_t>{channels, 1, 1};
  return writer.node("Mul", name, {x, writer.floats(node.name + parameter, shape, factors.data())});
}

std::string scaled_lookup(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const std::string& name = node.name;
  if (node.input_scales.empty()) return lookup(writer, node.function.value(), name, x);
  const std::string in = by_channel(writer, node, name + "/Mul", x, ".input_scale", node.input_scales);
  const std::string y = lookup(writer, node.function.value(), name + "/function", in);
  return by_channel(writer, node, name, y, ".output_scale", node.output_scales);
}

/// ONNX takes one slope, or one for each channel.
std::string prelu(OnnxWriter& writer, const SharedNode& node, const std::string& x) {
  const int64_t channels = node.shape.c, each = channels / node.attributes.groups;
  std::vector<float> slopes = node.slopes;
  std::vector<int64_t> shape = {1};
  if (slopes.size() > 1) {
    shape = node.row ? std::vector<int64_t>{channels} : std::vector<int64_t>{channels, 1, 1};
    slopes.clear();
    for (int64_t c = 0; c < channels; ++c) slopes.push_back(node.slopes[static_cast<size_t>(c / each)]);
  }
  return writer.node("PRelu", node.name, {x, writer.floats(node.name + ".weight", shape, slopes.data())});
}

}  // namespace

std::string write_operator(OnnxWriter& writer, const SharedNode& node, const std::vector<std::string>& x) {
  const auto fail = [&](const char* what) {
    return usage_error(fmt::format("export: node '{}' ({}): {}", node.name, op_name(node.attributes.op), what));
  };
  switch (node.attributes.op) {
    case Op::add:
      return writer.node("Add", node.name, x);
    case Op::mul:
      return writer.node("Mul", node.name, x);
    case Op::concat:
      return concat(writer, node.name, x);
    case Op::max_pool:
      return max_pool(writer, node, x[0]);
    case Op::avg_pool:
      return avg_pool(writer, node, x[0]);
    case Op::global_avg_pool:
      return writer.node("GlobalAveragePool", node.name, x);
    case Op::flatten:
      return writer.flatten(node.name, x[0]);
    case Op::subsample_pad:
      return subsample_pad(writer, node, x[0]);
    case Op::slice:
      return slice(writer, node, x[0]);
    case Op::resize:
    case Op::resize_bilinear:
      return resize(writer, node, x[0]);
    case Op::channel_shuffle:
      return channel_shuffle(writer, node, x[0]);
    case Op::depth_to_space:
      if (node.attributes.factor_h != node.attributes.factor_w)
        throw fail("ONNX's blocks are squares: give it equal factors");
      return depth_to_space(writer, node, x[0]);
    case Op::matmul:
      return matmul(writer, node, x);
    case Op::softmax:
      return softmax(writer, node, x[0]);
    case Op::prelu:
      return prelu(writer, node, x[0]);
    case Op::lookup:
      return scaled_lookup(writer, node, x[0]);
    case Op::input:
    case Op::conv2d:
    case Op::batch_norm:
    case Op::relu:
    case Op::relu6:
    case Op::linear:
    case Op::dropout:
    case Op::requantize:
      break;
  }
  throw fail("has no form in ONNX here");
}

std::optional<Function> read_function(const std::string& text) {
  const size_t space = text.find(' ');
  const std::optional<FunctionKind> kind = find_function(text.substr(0, space));
  if (!kind) return std::nullopt;
  Function function{*kind};
  if (*kind != FunctionKind::leaky_relu) return space == std::string::npos ? std::optional(function) : std::nullopt;
  if (space == std::string::npos) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + space + 1, end, function.slope);
  return error == std::errc() && stop == end ? std::optional(function) : std::nullopt;
}

}  // namespace octet
