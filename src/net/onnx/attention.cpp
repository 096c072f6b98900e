// SPDX-License-Identifier: Apache-2.0
// Attention, as exporters write it: a Reshape divides an image's channels into heads and flattens its pixels
// (OnnxValue::heads), Split takes the queries, keys and values of each head, Transposes put pixels before channels
// (pixels_first), and MatMuls of two activations and a Softmax follow. octet's matmul and softmax do the same on
// images, so the Reshapes and Transposes become no nodes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

/// Appends a node called `name`, after the output of the file's node if that name is taken.
OnnxValue append(NodeReader& node, Node made, const std::string& name) {
  return node.network().append(std::move(made), {name, node.name_of_output(0) + "/" + name});
}

/// Shuffles the channels of `groups` groups, which changes nothing if there is one group or one channel in each.
OnnxValue shuffled(NodeReader& node, const OnnxValue& x, int64_t groups, const std::string& name) {
  if (groups == 1 || groups == node.network().shape(x).c) return x;
  return append(node, {.op = Op::channel_shuffle, .inputs = {x.node}, .groups = static_cast<int>(groups)}, name);
}

const char* layout_of(const OnnxValue& x) {
  return x.pixels_first ? "[.., pixels, channels]" : "[.., channels, pixels]";
}

}  // namespace

int64_t axis_of_channels(const OnnxValue& x) { return x.pixels_first ? x.rank - 1 : x.rank - 2; }

bool reshape_to_heads(NodeReader& node, const OnnxValue& x, std::vector<int64_t> to) {
  const Shape& shape = node.network().shape(x);
  const int64_t pixels = static_cast<int64_t>(shape.h) * shape.w;
  if (to.size() < 3 || to.size() > 4 || x.pixels_first) return false;
  const bool images_known = to[0] != -1;
  if (images_known && to[0] != kBatchSize && to[0] != node.network().batch) return false;
  const auto open = std::find(to.begin() + 1, to.end(), -1);
  if (open != to.end()) {
    int64_t rest = 1;
    for (size_t i = 1; i < to.size(); ++i)
      if (to[i] >= 1 && to[i] <= shape.elements() && rest <= shape.elements()) rest *= to[i];
    if (!images_known || shape.elements() % rest != 0) return false;
    *open = shape.elements() / rest;
  }
  const int64_t heads = to.size() == 4 ? to[1] : 1;
  if (to.back() != pixels || heads < 1 || shape.c % heads != 0 || to[to.size() - 2] != shape.c / heads) return false;
  OnnxValue y = x;
  y.rank = static_cast<int>(to.size());
  y.heads = static_cast<int>(heads);
  y.direct = false;
  node.result(y);
  return true;
}

void reshape_heads(NodeReader& node) {
  OnnxValue x = node.head_input(0);
  const Shape& shape = node.network().shape(x);
  std::vector<int64_t> to = node.integers_input(1);
  const bool zero_is_zero = node.integer("allowzero", 0) != 0;
  if (!to.empty() && to[0] == 0 && !zero_is_zero) to[0] = node.network().batch;
  const bool image = !x.pixels_first && to.size() == 4 && to[2] == shape.h && to[3] == shape.w &&
                     (to[1] == shape.c || (to[1] == -1 && to[0] != -1)) &&
                     (to[0] == -1 || to[0] == kBatchSize || to[0] == node.network().batch);
  if (image) {
    x.heads = 0, x.rank = 4, x.direct = false;
    return node.result(x);
  }
  if (!reshape_to_heads(node, x, to))
    node.refuse(fmt::format("{} of [{}, {}, {}] in {} heads to {}; expected the image again, [N, {}, {}, {}]",
                            layout_of(x), shape.c, shape.h, shape.w, x.heads, dims_text(to), shape.c, shape.h,
                            shape.w));
}

bool swap_pixels_and_channels(NodeReader& node) {
  OnnxValue x = node.input(0);
  if (x.heads == 0) return false;
  const std::vector<int64_t> swapped = x.rank == 4 ? std::vector<int64_t>{0, 1, 3, 2} : std::vector<int64_t>{0, 2, 1};
  if (node.integers("perm", {}) != swapped)
    node.refuse(fmt::format("heads of attention; expected perm {}", dims_text(swapped)));
  x.pixels_first = !x.pixels_first;
  x.direct = x.direct && node.readers(0) == 1;
  node.result(x);
  return true;
}

OnnxValue channels_of_heads(NodeReader& node, const OnnxValue& x, int64_t first, int64_t count,
                            const std::string& name) {
  Network& network = node.network();
  const int64_t heads = x.heads, each = network.shape(x).c / heads;
  if (first < 0 || first > each || count < 1 || count > each - first)
    node.invalid(fmt::format("{} channels from {} on of {} in each head", count, first, each));
  // Ordered by channel instead of by head, the wanted channels are contiguous. The second shuffle orders by head again.
  const OnnxValue by_channel = shuffled(node, x, heads, name + "/turns");
  const Node piece{.op = Op::slice,
                   .inputs = {by_channel.node},
                   .out_channels = static_cast<int>(count * heads),
                   .first_channel = static_cast<int>(first * heads)};
  OnnxValue y = x;
  y.direct = false;
  y.dequantized = false;
  const bool back = heads != 1 && count != 1;
  y.node = append(node, piece, back ? name + "/piece" : name).node;
  if (back) y.node = shuffled(node, y, count, name).node;
  return y;
}

void split_heads(NodeReader& node) {
  const OnnxValue x = node.head_input(0);
  const int64_t each = node.network().shape(x).c / x.heads;
  if (positive_axis(node, node.integer("axis", 0), x.rank) != axis_of_channels(x))
    node.refuse(fmt::format("along axis {} of heads {}; expected {}, the channels", node.integer("axis", 0),
                            layout_of(x), axis_of_channels(x)));
  split_channels(node, each, [&](int64_t first, int64_t size, const std::string& name) {
    return channels_of_heads(node, x, first, size, name);
  });
}

void matmul_of_heads(NodeReader& node) {
  const OnnxValue left = node.head_input(0), right = node.head_input(1);
  if (left.heads == 0 || left.heads != right.heads || left.rank != right.rank)
    node.refuse(
        "of two activations; expected [N, heads, channels, pixels] or [N, heads, pixels, channels] of both, as in "
        "attention");
  if (left.shift != 0 || right.shift != 0 || left.erf || right.erf) node.refuse("of an activation plus a number");
  if (!left.pixels_first && right.pixels_first)
    node.refuse(
        "mixes channels by channels; octet's attention mixes pixels, expected [.., pixels, channels] times "
        "[.., channels, pixels]");
  const bool scores = left.pixels_first && !right.pixels_first;
  const bool weighted_left = left.pixels_first;  // else [channels, pixels] * [pixels as channels, pixels]
  const int a = weighted_left ? left.node : right.node, b = weighted_left ? right.node : left.node;
  const double scale = left.factor * right.factor;
  if (!(scale > 0) || !std::isfinite(static_cast<float>(scale)))
    node.refuse(fmt::format("times {}; expected a positive factor", scale));
  OnnxValue y = node.network().append({.op = Op::matmul,
                                       .inputs = {a, b},
                                       .groups = left.heads,
                                       .transposed = scores,
                                       .scale = static_cast<float>(scale)},
                                      node.names(), left.rank);
  y.heads = left.heads;
  y.pixels_first = left.pixels_first;
  node.result(y);
}

bool scale_product(NodeReader& node, int product, double factor) {
  Network& network = node.network();
  OnnxValue x = node.input(product);
  if (x.node < 0 || x.factor != 1 || x.shift != 0 || x.erf) return false;
  Node scaled = network.node(x);
  scaled.scale = static_cast<float>(scaled.scale * factor);
  if (scaled.op != Op::matmul || !(scaled.scale > 0) || !std::isfinite(scaled.scale)) return false;
  if (x.direct && node.readers(product) == 1) {
    network.node(x).scale = scaled.scale;
  } else if (network.marks != nullptr) {
    return false;  // the copy would have no scale
  } else {
    x.node = append(node, scaled, network.node(x).name + "/scaled").node;
  }
  node.result(x);
  return true;
}

void softmax_of_heads(NodeReader& node) {
  OnnxValue x = node.head_input(0);
  Network& network = node.network();
  if (!x.plain())
    node.refuse("of an activation times or plus a number; expected a product of two, or that times a positive number");
  const int64_t axis = positive_axis(node, node.integer("axis", node.opset() < 13 ? 1 : -1), x.rank);
  const Node product = network.node(x);
  const bool flips = axis != axis_of_channels(x) && product.op == Op::matmul && product.transposed;
  if (flips) {  // a softmax over the queries: exchange queries and keys
    Node flipped = product;
    std::swap(flipped.inputs[0], flipped.inputs[1]);
    x.node = append(node, flipped, product.name + "/flipped").node;
    if (x.dequantized) network.marks->edges.emplace(network.node(x).name, network.marks->edges.at(product.name));
    x.pixels_first = !x.pixels_first;
  }
  if (axis != axis_of_channels(x) || (node.opset() < 13 && axis != x.rank - 1))
    node.refuse(fmt::format("over axis {} of heads {}; expected the channels", axis, layout_of(x)));
  OnnxValue y = network.append({.op = Op::softmax, .inputs = {x.node}, .groups = x.heads}, node.names(), x.rank);
  y.heads = x.heads;
  y.pixels_first = x.pixels_first;
  node.result(y);
}

}  // namespace octet::onnx_rules
