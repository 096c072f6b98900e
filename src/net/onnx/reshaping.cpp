// SPDX-License-Identifier: Apache-2.0
// Flatten, Reshape, Squeeze, Unsqueeze of activations: [N, C, H, W] to [N, C*H*W], and between [N, C, 1, 1] and [N, C].
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

std::vector<int64_t> dims_of(NodeReader& node, const OnnxValue& x) {
  return node.network().dims(x, node.network().batch);
}

void change_rank(NodeReader& node, int rank) {
  OnnxValue y = node.activation(0);
  y.rank = rank;
  y.channels_last = false;  // of one pixel, or one row of them
  y.direct = false;
  node.result(y);
}

/// Makes [N, C*H*W] of the input; for an image of one pixel without a node.
void to_row(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const Shape& shape = node.network().shape(x);
  if (shape.h == 1 && shape.w == 1) return change_rank(node, 2);
  OnnxValue y = node.network().append({.op = Op::flatten, .inputs = {x.node}}, node.names(), 2);
  y.channels_last = x.channels_last;
  node.result(y);
}

/// Imports the last Reshape of a channel shuffle, after the Transpose.
void end_shuffle(NodeReader& node) {
  const OnnxValue x = node.input(0);
  const Shape& shape = node.network().shape(x);
  std::vector<int64_t> to = node.integers_input(1);
  const std::array<int64_t, 4> from = {node.network().batch, shape.c, shape.h, shape.w};
  const auto open = std::find(to.begin(), to.end(), -1);  // what the other dimensions leave
  if (to.size() == from.size() && open != to.end() && open != to.begin()) *open = from[open - to.begin()];
  const bool zero_is_zero = node.integer("allowzero", 0) != 0;
  const bool images_first =
      !to.empty() && (to[0] == from[0] || to[0] == kBatchSize || to[0] == -1 || (to[0] == 0 && !zero_is_zero));
  if (!x.swapped || !images_first || !std::equal(from.begin() + 1, from.end(), to.begin() + 1, to.end()))
    node.refuse(fmt::format("five dimensions to {}; expected a channel shuffle", dims_text(to)));
  node.make({.op = Op::channel_shuffle, .inputs = {x.node}, .groups = static_cast<int>(x.groups)}, 4);
}

}  // namespace

size_t axes_behind_channels(const OnnxValue& x) { return x.channels_last ? 0 : static_cast<size_t>(x.rank) - 2; }

int64_t positive_axis(NodeReader& node, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) node.invalid(fmt::format("axis {} of {} dimensions", axis, rank));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> read_axes(NodeReader& node, int64_t rank) {
  std::vector<int64_t> axes = node.row(1, "axes");
  for (int64_t& axis : axes) axis = positive_axis(node, axis, rank);
  return axes;
}

void flatten(NodeReader& node) {
  const int rank = node.activation(0).rank;
  const int64_t axis = node.integer("axis", 1);
  if ((axis < 0 ? axis + rank : axis) != 1) node.refuse(fmt::format("axis {}; expected 1", axis));
  to_row(node);
}

void reshape(NodeReader& node) {
  if (node.input(0).constant) return reshape_constant(node);
  if (node.input(0).groups != 0) return end_shuffle(node);
  if (node.input(0).heads != 0) return reshape_heads(node);
  const OnnxValue x = node.activation(0);
  const std::vector<int64_t> from = dims_of(node, x);
  const std::vector<int64_t> wanted = node.integers_input(1);
  std::vector<int64_t> to = wanted;
  const bool zero_is_zero = node.integer("allowzero", 0) != 0;
  const int64_t elements = node.network().shape(x).elements();
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] == 0 && !zero_is_zero && i < from.size()) to[i] = from[i];
  const bool images_first = !to.empty() && (to[0] == kBatchSize || to[0] == from[0] || to[0] == -1);
  const bool rest_known = to.size() > 1 && to[0] == -1;  // then no other dimension may be -1
  if (images_first && to.size() == 2 && (to[1] == elements || (to[1] == -1 && !rest_known))) return to_row(node);
  const Shape& shape = node.network().shape(x);
  if (!x.channels_last && images_first && to.size() == 4 && to[1] == shape.c && to[2] == shape.h && to[3] == shape.w)
    return change_rank(node, 4);
  if (images_first && x.rank == 4 && !x.channels_last && to.size() == 5 && to[1] >= 1 && to[1] <= shape.c &&
      std::equal(to.begin() + 2, to.end(), std::array<int64_t, 3>{shape.c / to[1], shape.h, shape.w}.begin()) &&
      shape.c % to[1] == 0) {
    OnnxValue y = x;
    y.groups = to[1];
    return node.result(y);
  }
  if (x.rank == 4 && !x.channels_last && reshape_to_heads(node, x, to)) return;
  node.refuse(
      fmt::format("{} to {}; expected [N, -1], a flatten, or the heads of attention, [N, heads, C / heads, H * W]",
                  dims_text(from), dims_text(wanted)));
}

void squeeze(NodeReader& node) {
  if (node.input(0).constant) return reshape_constant(node);
  const OnnxValue x = node.activation(0);
  std::vector<int64_t> axes = read_axes(node, x.rank);
  std::sort(axes.begin(), axes.end());
  const Shape& shape = node.network().shape(x);
  const int64_t first = x.channels_last ? 1 : 2;  // of height and width
  const bool row = x.rank == 4 && shape.h == 1, pixel = shape.h == 1 && shape.w == 1;
  if (x.rank == 4 && pixel && axes == std::vector<int64_t>{first, first + 1}) return change_rank(node, 2);
  if (row && !x.channels_last && (axes == std::vector<int64_t>{2} || (pixel && axes == std::vector<int64_t>{3})))
    return change_rank(node, 3);
  if (x.rank == 3 && pixel && axes == std::vector<int64_t>{2}) return change_rank(node, 2);
  node.refuse(fmt::format("axes {} of {}; expected height and width of one pixel", dims_text(axes),
                          dims_text(dims_of(node, x))));
}

void unsqueeze(NodeReader& node) {
  if (node.input(0).constant) return reshape_constant(node);
  const OnnxValue x = node.activation(0);
  const int rank = x.rank + static_cast<int>(std::min<size_t>(node.row(1, "axes").size(), 2));
  std::vector<int64_t> axes = read_axes(node, rank);
  std::sort(axes.begin(), axes.end());
  const bool pixel = x.rank == 2 && (axes == std::vector<int64_t>{2} || axes == std::vector<int64_t>{2, 3});
  if (pixel || (x.rank == 3 && axes == std::vector<int64_t>{2})) return change_rank(node, rank);
  node.refuse(fmt::format("axes {} of {}; expected [N, C] to [N, C, 1, 1], or [N, C, W] to [N, C, 1, W]",
                          dims_text(axes), dims_text(dims_of(node, x))));
}

}  // namespace octet::onnx_rules
