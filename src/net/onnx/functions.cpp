// SPDX-License-Identifier: Apache-2.0
// Functions of one value, which become lookups, and products. Exporters write silu as x * sigmoid(x), hard-swish as
// x * hard_sigmoid(x) or x * relu6(x + 3) / 6, gelu as x * (1 + erf(x / sqrt(2))) / 2, and mish as x *
// tanh(softplus(x)). The numbers are kept in the value (OnnxValue), and a Mul of a value with its own sigmoid or erf
// becomes one lookup. No node then needs the sigmoid, which finish() removes.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

/// Whether two numbers are equal up to the file's rounding: as float32 0.16666667 is a sixth.
bool near(NodeReader& node, double a, double b) { return std::abs(a - b) < node.network().rounding; }

OnnxValue append_lookup(NodeReader& node, const OnnxValue& x, const Function& function) {
  return node.network().append({.op = Op::lookup, .inputs = {x.node}, .function = function}, node.names(), x.rank);
}

void lookup(NodeReader& node, const Function& function) {
  node.result(append_lookup(node, node.activation(0), function));
}

/// Reads input i, a constant: one number for all channels of x, or one for each.
std::vector<float> channel_numbers(NodeReader& node, int i, const OnnxValue& x) {
  const Constant& found = node.constant(i);
  const size_t count = found.reals.size(), behind = axes_behind_channels(x), rank = found.shape.size();
  const int64_t channels = x.heads != 0 ? 1 : node.network().shape(x).c;  // heads take one number for all
  const bool each =
      rank > behind && found.shape[rank - 1 - behind] == channels && count == static_cast<size_t>(channels);
  if (!found.real || rank > static_cast<size_t>(x.rank) || (count != 1 && !each)) {
    node.refuse(fmt::format(
        "input '{}' is {} {}; expected an activation, or one float32 number, or one for each of {} "
        "channels",
        shown_name(node.name_of_input(i)), found.real ? "float32" : "integer", dims_text(found.shape), channels));
  }
  return found.reals;
}

/// Reads the same for a sum or product, which in a quantized network takes one number only.
std::vector<float> numbers(NodeReader& node, int i, const OnnxValue& x) {
  const std::vector<float> found = channel_numbers(node, i, x);
  if (found.size() != 1 && node.network().marks != nullptr)
    node.refuse("one number for each channel in a quantized network; expected it in the weights of the layer before");
  return found;
}

void note_image(Network& network, const OnnxValue& x) {
  if (x.node != 0) return;
  network.note(
      "the network scales or shifts the image itself, in a layer of its own: give it the pixels that the file takes, "
      "of 0 to 1 with data.mean 0 and data.std 1, of 0 to 255 with data.mean 0 and data.std 0.003921569");
}

void times(NodeReader& node, const OnnxValue& x, double factor) {
  OnnxValue y = x;
  y.direct = false;
  y.factor *= factor;
  y.shift *= factor;
  if (near(node, y.factor, 1)) y.factor = 1;
  node.result(std::move(y));
}

/// Imports factors[c] * x + shifts[c] for the channels c of input i; each list has one number for each channel or one
/// for all. If x is a layer that no other node reads, its weights and bias change, else a layer is appended.
void scale_channels(NodeReader& node, int i, std::vector<float> factors, std::vector<float> shifts) {
  const OnnxValue x = node.scaled_input(i);
  if (x.erf) node.refuse("of an Erf; expected a gelu");
  Network& network = node.network();
  const auto channels = static_cast<size_t>(network.shape(x).c);
  factors.resize(channels, factors[0]);
  shifts.resize(channels, shifts[0]);
  for (size_t c = 0; c < channels; ++c) {
    shifts[c] = static_cast<float>(factors[c] * x.shift + shifts[c]);
    factors[c] = static_cast<float>(factors[c] * x.factor);
  }
  if (!x.direct || !has_weight(network.node(x).op) || node.readers(i) != 1) {
    note_image(network, x);
    return node.result(scaled_channels(network, x, factors, shifts, node.names()));
  }
  network.scale_layer(network.node(x), factors, shifts);
  node.result(x);
}

/// Multiplies input i. In attention the matmul takes the factor.
void times(NodeReader& node, int i, double factor) {
  const bool heads = node.input(i).heads != 0;
  const OnnxValue& x = heads ? node.head_input(i) : node.scaled_input(i);
  if (!heads || !scale_product(node, i, factor)) times(node, x, factor);
}

/// Multiplies input i by one number, which is kept in the value for later nodes, or by one for each channel.
void times_numbers(NodeReader& node, int i, const std::vector<float>& factors) {
  if (factors.size() == 1) return times(node, i, factors[0]);
  scale_channels(node, i, factors, {0.0f});
}

void add_numbers(NodeReader& node, int constant, float sign) {
  const OnnxValue& x = node.scaled_input(1 - constant);
  std::vector<float> shifts = numbers(node, constant, x);
  for (float& shift : shifts) shift *= sign;
  if (shifts.size() != 1) return scale_channels(node, 1 - constant, {1.0f}, shifts);
  OnnxValue y = x;
  y.direct = false;
  y.shift += shifts[0];
  node.result(std::move(y));
}

/// Returns z of which min(max(alpha * x + beta, 0), 1) of input i is the hard_sigmoid, min(max(z / 6 + 1 / 2, 0), 1).
OnnxValue hard_sigmoid_input(NodeReader& node, int i, double alpha, double beta) {
  OnnxValue x = node.scaled_input(i);
  if (x.erf) node.refuse("of an Erf; expected a gelu");
  x.shift = 6 * (alpha * x.shift + beta) - 3;
  x.factor *= 6 * alpha;
  if (near(node, x.factor, 1) && near(node, x.shift, 0)) x.factor = 1, x.shift = 0;
  return x;
}

/// Returns x, which is input i times and plus numbers, as a node: the layer before it, where nothing else reads that,
/// or a layer of its own.
OnnxValue with_numbers(NodeReader& node, int i, OnnxValue x) {
  if (x.plain()) return x;
  Network& network = node.network();
  if (x.direct && has_weight(network.node(x).op) && node.readers(i) == 1) {
    const auto channels = static_cast<size_t>(network.shape(x).c);
    network.scale_layer(network.node(x), std::vector<float>(channels, static_cast<float>(x.factor)),
                        std::vector<float>(channels, static_cast<float>(x.shift)));
    x.factor = 1, x.shift = 0;
    return x;
  }
  return with_numbers_applied(network, x, {node.name_of_output(0) + "/input"});
}

/// Whether x * gate = 2 * (product of both factors) * gelu(x).
bool is_gelu(NodeReader& node, const OnnxValue& x, const OnnxValue& gate) {
  return gate.erf && !x.erf && x.node == gate.node && x.shift == 0 && near(node, gate.shift, gate.factor);
}

/// Whether a node is the tanh of the softplus of x, without codes between them.
bool is_mish_gate(const Network& network, const Node& node, const OnnxValue& x) {
  if (node.op != Op::lookup || node.function.kind != FunctionKind::tanh) return false;
  const Node& inner = network.graph().nodes[static_cast<size_t>(node.inputs[0])];
  const bool coded = network.marks != nullptr && network.marks->edges.contains(inner.name);
  return inner.op == Op::lookup && inner.function.kind == FunctionKind::softplus && inner.inputs[0] == x.node && !coded;
}

/// Returns the function f if x * gate = factor * f(x): silu if the gate is factor * sigmoid(x).
std::optional<FunctionKind> gated(Network& network, const OnnxValue& x, const OnnxValue& gate) {
  const Node& node = network.node(gate);
  if (gate.shift != 0 || !x.plain() || gate.dequantized || gate.erf)  // a gate with codes of its own stays a mul
    return std::nullopt;
  if (is_mish_gate(network, node, x)) return FunctionKind::mish;
  if (node.op != Op::lookup || node.inputs[0] != x.node) return std::nullopt;
  if (node.function.kind == FunctionKind::sigmoid) return FunctionKind::silu;
  if (node.function.kind == FunctionKind::hard_sigmoid) return FunctionKind::hard_swish;
  return std::nullopt;
}

}  // namespace

void sigmoid(NodeReader& node) { lookup(node, {FunctionKind::sigmoid}); }
void hard_swish(NodeReader& node) { lookup(node, {FunctionKind::hard_swish}); }
void tanh(NodeReader& node) { lookup(node, {FunctionKind::tanh}); }
void mish(NodeReader& node) { lookup(node, {FunctionKind::mish}); }
void softplus(NodeReader& node) { lookup(node, {FunctionKind::softplus}); }

void elu(NodeReader& node) {
  const double alpha = node.real("alpha", 1.0f);
  if (alpha != 1) node.refuse(fmt::format("alpha {}; expected 1, PyTorch's nn.ELU()", alpha));
  lookup(node, {FunctionKind::elu});
}

void leaky_relu(NodeReader& node) { lookup(node, {FunctionKind::leaky_relu, node.real("alpha", 0.01f)}); }

void prelu(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const std::vector<float> slopes = channel_numbers(node, 1, x);
  const int groups = static_cast<int>(slopes.size());
  const OnnxValue y =
      node.network().append({.op = Op::prelu, .inputs = {x.node}, .groups = groups}, node.names(1), x.rank);
  node.network().put(node.network().node(y).name, "weight", {groups}, slopes);
  node.result(y);
}

void hard_sigmoid(NodeReader& node) {
  const double alpha = node.real("alpha", 0.2f), beta = node.real("beta", 0.5f);
  if (near(node, alpha, 1.0 / 6) && near(node, beta, 0.5)) return lookup(node, {FunctionKind::hard_sigmoid});
  if (!std::isfinite(alpha) || !std::isfinite(beta) || node.network().marks != nullptr)
    node.refuse(fmt::format("alpha {} and beta {}; expected 1/6 and 1/2, PyTorch's", alpha, beta));
  node.result(append_lookup(node, with_numbers(node, 0, hard_sigmoid_input(node, 0, alpha, beta)),
                            {FunctionKind::hard_sigmoid}));
}

void gelu(NodeReader& node) {
  const std::string form = node.text("approximate", "none");
  if (form != "none")
    node.refuse(fmt::format("approximate '{}'; expected none, PyTorch's nn.GELU()", shown_name(form)));
  lookup(node, {FunctionKind::gelu});
}

/// Keeps the erf in the value for the Mul that makes it a gelu.
void erf(NodeReader& node) {
  OnnxValue y = node.scaled_input(0);
  if (y.erf || y.shift != 0 || !near(node, y.factor, std::sqrt(0.5)))
    node.refuse("expected of an activation divided by the root of 2, inside a gelu");
  y.erf = true;
  y.factor = 1;
  y.direct = false;
  node.result(std::move(y));
}

bool limit_to_range(NodeReader& node, int i, double low, double high, bool only_gate) {
  if (only_gate && node.input(i).plain()) return false;
  const OnnxValue x = hard_sigmoid_input(node, i, 1 / (high - low), -low / (high - low));
  if (only_gate && !x.plain()) return false;
  OnnxValue y = append_lookup(node, with_numbers(node, i, x), {FunctionKind::hard_sigmoid});
  y.factor = high - low;
  y.shift = low;
  node.result(std::move(y));
  return true;
}

void limit_one_side(NodeReader& node, int i, double bound, bool is_lowest) {
  OnnxValue x = node.scaled_input(i);
  if (x.erf) node.refuse("of an Erf; expected a gelu");
  const Node& before = node.network().node(x);
  if (!is_lowest && bound == 6 && x.plain() && before.op == Op::relu)  // of min(max(x, 0), 6)
    return node.make({.op = Op::relu6, .inputs = before.inputs}, x.rank);
  x.shift = is_lowest ? x.shift - bound : bound - x.shift;
  if (!is_lowest) x.factor = -x.factor;
  OnnxValue y =
      node.network().append({.op = Op::relu, .inputs = {with_numbers(node, i, x).node}}, node.names(), x.rank);
  y.factor = is_lowest ? 1 : -1;
  y.shift = bound;
  y.direct = false;
  node.result(std::move(y));
}

void neg(NodeReader& node) { times(node, 0, -1); }

/// A power of 2 or 3 is a product.
void pow(NodeReader& node) {
  const Constant& found = node.bound(1);
  const double exponent = found.elements() != 1 ? 0
                          : found.real          ? found.reals[0]
                                                : static_cast<double>(found.integers[0]);
  if (exponent == 1) return identity(node);
  if (exponent != 2 && exponent != 3)
    node.refuse("expected the exponent 1, 2 or 3, one for all; octet has no function for others");
  const OnnxValue x = node.activation(0);
  OnnxValue y = x;
  if (exponent == 3)
    y = node.network().append({.op = Op::mul, .inputs = {x.node, x.node}}, {node.name_of_output(0) + "/square"});
  node.make({.op = Op::mul, .inputs = {y.node, x.node}}, x.rank);
}

void add_number(NodeReader& node, int i) { add_numbers(node, i, 1); }

OnnxValue with_numbers_applied(Network& network, const OnnxValue& x, const std::vector<std::string>& names) {
  note_image(network, x);
  const auto channels = static_cast<size_t>(network.shape(x).c);
  return scaled_channels(network, x, std::vector<float>(channels, static_cast<float>(x.factor)),
                         std::vector<float>(channels, static_cast<float>(x.shift)), names);
}

void sub(NodeReader& node) {
  if (node.all_constant()) return arithmetic(node);
  if (node.input(1).constant) return add_numbers(node, 1, -1);
  if (!node.input(0).constant) node.refuse("of two activations; expected one of both to be a constant");
  OnnxValue negative = node.scaled_input(1);  // c - x is c + (-x)
  if (negative.heads != 0 || node.network().marks != nullptr) node.refuse("of a constant minus an activation");
  const std::vector<float> from = numbers(node, 0, negative);
  scale_channels(node, 1, {-1.0f}, from);
}

/// Appends a convolution of ones, which makes `count` channels of one: an attention of pixels multiplies all channels.
OnnxValue copies_of_channel(NodeReader& node, const OnnxValue& x, int count) {
  Network& network = node.network();
  if (network.marks != nullptr) node.refuse("multiplies all channels by one; expected as many");
  const OnnxValue y = network.append({.op = Op::conv2d, .inputs = {x.node}, .out_channels = count},
                                     {node.name_of_output(0) + "/channels"}, x.rank);
  network.put(network.node(y).name, "weight", {count, 1, 1, 1}, std::vector<float>(static_cast<size_t>(count), 1.0f));
  return y;
}

void mul(NodeReader& node) {
  if (node.all_constant()) return arithmetic(node);
  for (const int i : {0, 1})
    if (node.input(i).constant) return times_numbers(node, 1 - i, numbers(node, i, node.input(1 - i)));
  Network& network = node.network();
  for (const int i : {0, 1}) {
    const OnnxValue x = node.scaled_input(i), gate = node.scaled_input(1 - i);
    if (is_gelu(node, x, gate)) {
      OnnxValue y = append_lookup(node, x, {FunctionKind::gelu});
      return times(node, y, 2 * x.factor * gate.factor);
    }
    const std::optional<FunctionKind> function = gated(network, x, gate);
    if (!function) continue;
    OnnxValue y = append_lookup(node, x, {*function});
    y.factor = gate.factor;
    return node.result(std::move(y));
  }
  OnnxValue a = node.activation(0), b = node.activation(1);
  if (a.rank != b.rank) node.refuse("multiplies [N, C] with [N, C, H, W]");
  if (network.shape(a).c < network.shape(b).c) std::swap(a, b);
  if (network.shape(b).c == 1 && network.shape(a).c > 1) b = copies_of_channel(node, b, network.shape(a).c);
  if (network.shape(a).h == 1 && network.shape(a).w == 1) std::swap(a, b);  // the factor of a channel comes second
  node.make({.op = Op::mul, .inputs = {a.node, b.node}}, a.rank);
}

void div(NodeReader& node) {
  if (node.all_constant()) return arithmetic(node);
  if (!node.input(1).constant) node.refuse("divides by an activation; expected a constant");
  std::vector<float> factors = numbers(node, 1, node.input(0));
  for (const float divisor : factors)
    if (divisor == 0) node.fail("divides by 0, which gives infinity: export the network again without it");
  if (factors.size() == 1) return times(node, 0, 1 / static_cast<double>(factors[0]));
  for (float& factor : factors) factor = 1 / factor;
  times_numbers(node, 0, factors);
}

}  // namespace octet::onnx_rules
