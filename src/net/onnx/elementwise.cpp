// SPDX-License-Identifier: Apache-2.0
// Relu, Clip, Add, Concat, and operators that are the identity at inference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

void unary(NodeReader& node, Op op) {
  const OnnxValue x = node.activation(0);
  node.make({.op = op, .inputs = {x.node}}, x.rank);
}

/// Reads a scalar input of Clip or Dropout.
float scalar(NodeReader& node, int input, float fallback) {
  if (!node.has_input(input)) return fallback;
  const Constant& found = node.bound(input);
  if (!found.real || found.reals.size() != 1 || std::isnan(found.reals[0]))
    node.invalid(fmt::format("input '{}' is not one float32 number", shown_name(node.name_of_input(input))));
  return found.reals[0];
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
  if (node.network().marks != nullptr) return bound(node, 0, std::numeric_limits<float>::infinity());
  unary(node, Op::relu);
}

void clip(NodeReader& node) {
  const OnnxValue& x = node.input(0);
  if (x.codes || (x.constant && !x.constant->real)) return clip_codes(node);
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float low = std::max(scalar(node, 1, -kLargest), -kLargest),
              high = std::min(scalar(node, 2, kLargest), kLargest);
  if (low == 0 && high == 6 && clip_of_hard_sigmoid(node)) return;
  if (low == -kLargest && high == kLargest) return identity(node);
  if (node.network().marks != nullptr) return bound(node, low, high);
  if (low == 0 && high == 6) return unary(node, Op::relu6);
  if (low == 0 && high == kLargest) return unary(node, Op::relu);
  node.refuse(fmt::format("to {} .. {}; expected 0 .. 6 (ReLU6), or 0 and no upper bound (ReLU)", low, high),
              fmt::format("; {}, whose Clips may have any bounds: octet run, bench and export take that file",
                          kQuantizeByOnnxRuntime));
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
  const float ratio = node.has("ratio") ? node.real("ratio", 0.5f) : scalar(node, 1, 0.5f);
  if (node.has_input(2)) node.constant(2);
  if (ratio == 0 || node.network().marks != nullptr) return identity(node);
  node.make({.op = Op::dropout, .inputs = {x.node}, .dropout = ratio}, x.rank);
}

void identity(NodeReader& node) {
  OnnxValue x = node.input(0);
  x.direct = false;
  node.result(x);
}

/// A Softmax at the end is left out, because it changes no prediction: octet's outputs are logits, and its losses apply
/// the softmax themselves.
void softmax(NodeReader& node) {
  if (node.input(0).heads != 0) return softmax_of_heads(node);
  OnnxValue x = node.activation(0);
  const int64_t usual = node.opset() < 13 ? 1 : -1;
  if (positive_axis(node, node.integer("axis", usual), x.rank) != 1)
    node.refuse("not over the channels; expected axis 1");
  x.direct = false;
  x.softmax = true;
  node.network().note(node.label() + ": left out; the outputs are logits");
  node.result(x);
}

}  // namespace octet::onnx_rules
