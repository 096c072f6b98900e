// Functions of one value, which octet has as lookups, and products. Exporters write silu as x * sigmoid(x), and
// hard-swish as x * hard_sigmoid(x) or in pieces, x * relu6(x + 3) / 6, and gelu as x * (1 + erf(x / sqrt(2))) / 2: the
// numbers wait in the value (OnnxValue), and a Mul of a value with its own sigmoid or erf is one lookup. The sigmoid
// alone is then needed by nothing and goes.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "src/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

/// What files give as float32: 0.16666667 for a sixth.
bool near(double a, double b) { return std::abs(a - b) < 1e-6; }

OnnxValue append_lookup(NodeReader& node, const OnnxValue& x, const Curve& curve) {
  OnnxValue y = node.network().append({.op = Op::lookup, .inputs = {x.node}, .curve = curve}, node.names());
  y.rank = x.rank;
  return y;
}

void lookup(NodeReader& node, const Curve& curve) { node.result(append_lookup(node, node.activation(0), curve)); }

/// The one number that input i is.
double number(NodeReader& node, int i) {
  const Constant& found = node.constant(i);
  if (!found.real || found.reals.size() != 1) {
    node.fail(
        fmt::format("input '{}' is {}; expected an activation, or one float32 number inside a hard-swish or attention",
                    shown_name(node.name_of_input(i)), dims_text(found.shape)));
  }
  return found.reals[0];
}

void times(NodeReader& node, const OnnxValue& x, double factor) {
  OnnxValue y = x;
  y.direct = false;
  y.factor *= factor;
  y.shift *= factor;
  if (near(y.factor, 1)) y.factor = 1;
  node.result(std::move(y));
}

/// Of input i. In attention heads wait for their product, and the product takes it.
void times(NodeReader& node, int i, double factor) {
  const bool heads = node.input(i).heads != 0;
  const OnnxValue& x = heads ? node.head_input(i) : node.scaled_input(i);
  if (!heads || !scale_product(node, i, factor)) times(node, x, factor);
}

/// x * gate = 2 * (the factors of both) * gelu of their node.
bool is_gelu(const OnnxValue& x, const OnnxValue& gate) {
  return gate.erf && !x.erf && x.node == gate.node && x.shift == 0 && near(gate.shift, gate.factor);
}

/// gate = factor * sigmoid(x): x * gate is factor * silu(x).
std::optional<Function> gated(Network& network, const OnnxValue& x, const OnnxValue& gate) {
  const Node& node = network.node(gate);
  const bool own = node.op == Op::lookup && node.inputs[0] == x.node && gate.shift == 0 && x.plain();
  if (!own || gate.dequantized || gate.erf) return std::nullopt;  // codes of its own: a product of two edges
  if (node.curve.function == Function::sigmoid) return Function::silu;
  if (node.curve.function == Function::hard_sigmoid) return Function::hard_swish;
  return std::nullopt;
}

}  // namespace

void sigmoid(NodeReader& node) { lookup(node, {Function::sigmoid}); }
void hard_swish(NodeReader& node) { lookup(node, {Function::hard_swish}); }
void tanh(NodeReader& node) { lookup(node, {Function::tanh}); }
void leaky_relu(NodeReader& node) { lookup(node, {Function::leaky_relu, node.real("alpha", 0.01f)}); }

void hard_sigmoid(NodeReader& node) {
  const double alpha = node.real("alpha", 0.2f), beta = node.real("beta", 0.5f);
  if (!near(alpha, 1.0 / 6) || !near(beta, 0.5))
    node.fail(fmt::format("alpha {} and beta {}; expected 1/6 and 1/2, PyTorch's", alpha, beta));
  lookup(node, {Function::hard_sigmoid});
}

void gelu(NodeReader& node) {
  const std::string form = node.text("approximate", "none");
  if (form != "none") node.fail(fmt::format("approximate '{}'; expected none", shown_name(form)));
  lookup(node, {Function::gelu});
}

/// Waits for the Mul that makes it a gelu.
void erf(NodeReader& node) {
  OnnxValue y = node.scaled_input(0);
  if (y.erf || y.shift != 0 || !near(y.factor, std::sqrt(0.5)))
    node.fail("expected of an activation divided by the root of 2, inside a gelu");
  y.erf = true;
  y.factor = 1;
  y.direct = false;
  node.result(std::move(y));
}

bool clip_of_hard_sigmoid(NodeReader& node) {
  OnnxValue x = node.input(0);
  if (x.plain()) return false;
  x = node.scaled_input(0);
  if (x.factor != 1 || x.shift != 3 || x.erf) return false;
  x.shift = 0;
  OnnxValue y = append_lookup(node, x, {Function::hard_sigmoid});
  y.factor = 6;
  node.result(std::move(y));
  return true;
}

void add_number(NodeReader& node, int i) {
  OnnxValue y = node.scaled_input(1 - i);
  y.direct = false;
  y.shift += number(node, i);
  node.result(std::move(y));
}

void mul(NodeReader& node) {
  if (node.all_constant()) return arithmetic(node);
  for (const int i : {0, 1})
    if (node.input(i).constant) return times(node, 1 - i, number(node, i));
  Network& network = node.network();
  for (const int i : {0, 1}) {
    const OnnxValue x = node.scaled_input(i), gate = node.scaled_input(1 - i);
    if (is_gelu(x, gate)) {
      OnnxValue y = append_lookup(node, x, {Function::gelu});
      return times(node, y, 2 * x.factor * gate.factor);
    }
    const std::optional<Function> function = gated(network, x, gate);
    if (!function) continue;
    OnnxValue y = append_lookup(node, x, {*function});
    y.factor = gate.factor;
    return node.result(std::move(y));
  }
  OnnxValue a = node.activation(0), b = node.activation(1);
  if (a.rank != b.rank) node.fail("multiplies [N, C] with [N, C, H, W]");
  if (network.shape(a).h == 1 && network.shape(a).w == 1) std::swap(a, b);  // the factor of a channel comes second
  OnnxValue y = network.append({.op = Op::mul, .inputs = {a.node, b.node}}, node.names());
  y.rank = a.rank;
  node.result(std::move(y));
}

void div(NodeReader& node) {
  if (node.input(0).constant || !node.input(1).constant) return arithmetic(node);
  const double divisor = number(node, 1);
  if (divisor == 0) node.fail("divides by 0");
  times(node, 0, 1 / divisor);
}

}  // namespace octet::onnx_rules
