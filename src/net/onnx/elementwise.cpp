// SPDX-License-Identifier: Apache-2.0
// Relu, Clip, Add, Concat, and operators that are the identity at inference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

void unary(NodeReader& node, int i, Op op) {
  const OnnxValue x = node.activation(i);
  node.make({.op = op, .inputs = {x.node}}, x.rank);
}

/// Reads a number that is an input or, in older opsets, an attribute.
float scalar(NodeReader& node, int input, const char* name, float fallback) {
  if (!node.has_input(input)) return node.real(name, fallback);
  const Constant& found = node.bound(input);
  if (!found.real || found.reals.size() != 1 || std::isnan(found.reals[0]))
    node.invalid(fmt::format("input '{}' is not one float32 number", shown_name(node.name_of_input(input))));
  return found.reals[0];
}

constexpr float kLargest = std::numeric_limits<float>::max();

/// Imports min(max(x, low), high) of input i; kLargest is no bound.
void limit(NodeReader& node, int i, float low, float high) {
  const bool quantized = node.network().marks != nullptr;
  if (low == 0 && high == 6 && limit_to_range(node, i, low, high, /*only_gate=*/true)) return;
  if (low == -kLargest && high == kLargest) return identity(node);
  if (quantized) return bound(node, i, low, high);
  if (!(low < high)) node.invalid(fmt::format("to {} .. {}: no range", low, high));
  if (low > -kLargest && high < kLargest) {
    if (low == 0 && high == 6) return unary(node, i, Op::relu6);
    limit_to_range(node, i, low, high, /*only_gate=*/false);
    return;
  }
  if (low == 0) return unary(node, i, Op::relu);
  limit_one_side(node, i, low > -kLargest ? low : high, low > -kLargest);
}

void join(NodeReader& node, Op op) {
  std::vector<int> inputs;
  const int rank = node.activation(0).rank;
  for (int i = 0; i < node.inputs(); ++i) {
    if (node.activation(i).rank != rank) node.refuse("joins [N, C] with [N, C, H, W]");
    inputs.push_back(node.activation(i).node);
  }
  node.make({.op = op, .inputs = inputs}, rank);
}

}  // namespace

void relu(NodeReader& node) {
  if (node.network().marks != nullptr) return bound(node, 0, 0, std::numeric_limits<float>::infinity());
  unary(node, 0, Op::relu);
}

void clip(NodeReader& node) {
  const OnnxValue& x = node.input(0);
  if (x.codes || (x.constant && !x.constant->real)) return clip_codes(node);
  const float low = std::max(scalar(node, 1, "min", -kLargest), -kLargest),
              high = std::min(scalar(node, 2, "max", kLargest), kLargest);
  limit(node, 0, low, high);
}

/// A Max or Min with a number is a Clip with one bound.
void extremum(NodeReader& node) {
  const int number = node.inputs() == 2 && node.input(0).constant ? 0 : 1;
  if (node.inputs() != 2 || !node.input(number).constant) node.refuse("of activations; expected one and a number");
  const float bound = scalar(node, number, "", 0);
  if (node.op() == "Max") return limit(node, 1 - number, bound, kLargest);
  limit(node, 1 - number, -kLargest, bound);
}

void sum(NodeReader& node) {
  if (node.inputs() == 1) return identity(node);
  OnnxValue y = node.activation(0);
  for (int i = 1; i < node.inputs(); ++i) {
    const OnnxValue& x = node.activation(i);
    if (x.rank != y.rank) node.refuse("joins [N, C] with [N, C, H, W]");
    const bool last = i == node.inputs() - 1;
    const auto names = last ? node.names() : std::vector<std::string>{fmt::format("{}/{}", node.name_of_output(0), i)};
    y = node.network().append({.op = Op::add, .inputs = {y.node, x.node}}, names, y.rank);
  }
  node.result(y);
}

void add(NodeReader& node) {
  if (node.all_constant()) return arithmetic(node);
  for (const int i : {0, 1}) {
    if (!node.input(i).constant) continue;
    if (is_bias(node, i)) return add_bias(node, i);
    return is_shift(node, i) ? add_shift(node, i) : add_number(node, i);
  }
  join(node, Op::add);
}

void concat(NodeReader& node) {
  if (node.inputs() == 0) node.invalid("has no inputs");
  if (node.all_constant()) return concat_integers(node);
  const OnnxValue first = node.activation(0);
  if (positive_axis(node, node.integer("axis", 1), first.rank) != 1)
    node.refuse(fmt::format("along axis {}; expected 1, the channels", node.integer("axis", 1)));
  if (node.inputs() == 1) return identity(node);
  join(node, Op::concat);
}

/// A Dropout stays in the network: it acts while octet trains the float network.
void dropout(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  node.integer("seed", 0);
  const float ratio = scalar(node, 1, "ratio", 0.5f);
  if (node.has_input(2)) node.constant(2);
  if (ratio == 0 || node.network().marks != nullptr) return identity(node);
  node.make({.op = Op::dropout, .inputs = {x.node}, .dropout = ratio}, x.rank);
}

void identity(NodeReader& node) {
  OnnxValue x = node.input(0);
  x.direct = false;
  node.result(x);
}

/// A Softmax or LogSoftmax at the end is left out, because it changes no prediction: octet's outputs are logits, and
/// its losses apply the softmax themselves.
void softmax(NodeReader& node) {
  if (node.input(0).heads != 0 && node.op() == "Softmax") return softmax_of_heads(node);
  OnnxValue x = node.activation(0);
  const int64_t usual = node.opset() < 13 ? 1 : -1;
  const int64_t channels = x.channels_last ? 3 : 1;
  if (positive_axis(node, node.integer("axis", usual), x.rank) != channels)
    node.refuse(fmt::format("not over the channels; expected axis {}", channels));
  x.direct = false;
  x.softmax = true;
  node.network().note(node.label() + ": left out; the outputs are logits");
  node.result(x);
}

}  // namespace octet::onnx_rules
