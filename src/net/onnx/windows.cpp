// SPDX-License-Identifier: Apache-2.0
// Windows of Conv and pools: kernel, strides, pads, auto_pad, ceil_mode, and a Pad before them. The pools themselves.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/net/onnx/rules.h"
#include "src/net/shapes.h"

namespace octet::onnx_rules {
namespace {

/// Reads an attribute of two numbers, vertical and horizontal; rows [N, C, W] have the horizontal one.
std::array<int64_t, 2> pair(NodeReader& node, int rank, const char* key, const std::vector<int64_t>& fallback) {
  std::vector<int64_t> found = node.integers(key, fallback);
  if (rank == 3 && node.has(key)) found.insert(found.begin(), 1);
  const bool fits = found.size() == 2 && std::all_of(found.begin(), found.end(), [](int64_t value) {
                      return value >= 1 && value <= kMaxDimension;
                    });
  if (!fits) {
    node.refuse(fmt::format("{} {}; expected two numbers of 1 to {}: octet's images have height and width", key,
                            dims_text(found), kMaxDimension));
  }
  return {found[0], found[1]};
}

struct Pads {
  std::array<int64_t, 2> before, after;
};

Pads explicit_pads(NodeReader& node, int rank) {
  const size_t count = rank == 3 ? 2 : 4;
  const std::vector<int64_t> found = node.integers("pads", std::vector<int64_t>(count, 0));
  const bool fits = found.size() == count && std::all_of(found.begin(), found.end(), [](int64_t value) {
                      return value >= 0 && value <= kMaxDimension;
                    });
  if (!fits)
    node.refuse(fmt::format("pads {}; expected {} numbers of 0 to {}", dims_text(found), count, kMaxDimension));
  if (rank == 3) return {{0, found[0]}, {0, found[1]}};
  return {{found[0], found[1]}, {found[2], found[3]}};
}

/// Returns the pads of auto_pad SAME, which gives ceil(input / stride) outputs; an odd zero is behind (upper) or before
/// the image (lower).
Pads same_pads(const std::array<int64_t, 2>& in, const std::array<int64_t, 2>& extent,
               const std::array<int64_t, 2>& stride, bool upper) {
  Pads pads{};
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t outputs = (in[axis] + stride[axis] - 1) / stride[axis];
    const int64_t total = std::max<int64_t>(0, (outputs - 1) * stride[axis] + extent[axis] - in[axis]);
    pads.before[axis] = upper ? total / 2 : total - total / 2;
    pads.after[axis] = total - pads.before[axis];
  }
  return pads;
}

Pads read_pads(NodeReader& node, int rank, const std::array<int64_t, 2>& in, const std::array<int64_t, 2>& extent,
               const std::array<int64_t, 2>& stride) {
  const std::string mode = node.text("auto_pad", "NOTSET");
  const Pads given = explicit_pads(node, rank);
  if (mode == "NOTSET" || mode.empty()) return given;
  if (mode == "VALID") return {};
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER") {
    node.invalid(fmt::format("auto_pad '{}'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER", shown_name(mode)));
  }
  return same_pads(in, extent, stride, mode == "SAME_UPPER");
}

/// Adds the padding behind the image that ceil_mode implies for a last window beyond the edge. A MaxPool ignores it; an
/// average would count it, so it is refused.
Pads with_ceil(NodeReader& node, const std::array<int64_t, 2>& in, const std::array<int64_t, 2>& extent,
               const std::array<int64_t, 2>& stride, Pads pads) {
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t spare = in[axis] + pads.before[axis] + pads.after[axis] - extent[axis];
    const int64_t over = spare % stride[axis], started = spare / stride[axis] + 1;
    // A window that would start in the padding behind the image is not made.
    if (spare < 0 || over == 0 || started * stride[axis] >= in[axis] + pads.before[axis]) continue;
    if (node.op() != "MaxPool") {
      node.fail(fmt::format(
          "ceil_mode with a last window that hangs over an image of {}x{} padded pixels, of which its "
          "average takes fewer than the others; octet's averages are all of {}x{}: export the network for "
          "images of a size at which no window hangs over",
          in[0] + pads.before[0] + pads.after[0], in[1] + pads.before[1] + pads.after[1], extent[0], extent[1]));
    }
    pads.after[axis] += stride[axis] - over;
  }
  return pads;
}

int side(int64_t value) { return static_cast<int>(value); }

}  // namespace

Window read_window(NodeReader& node, const OnnxValue& x, const std::vector<int64_t>& kernel) {
  if (x.rank < 3) node.refuse("its input is not [N, C, H, W] or [N, C, W]");
  const Shape& shape = node.network().shape(x);
  const std::array<int64_t, 2> size = pair(node, x.rank, "kernel_shape", kernel);
  const std::array<int64_t, 2> stride = pair(node, x.rank, "strides", {1, 1});
  const std::array<int64_t, 2> dilation = pair(node, x.rank, "dilations", {1, 1});
  if (!kernel.empty() && (size[0] != kernel[0] || size[1] != kernel[1]))
    node.invalid(
        fmt::format("kernel_shape {}x{} differs from the weights' {}x{}", size[0], size[1], kernel[0], kernel[1]));
  const std::array<int64_t, 2> extent = {dilation[0] * (size[0] - 1) + 1, dilation[1] * (size[1] - 1) + 1};
  const std::array<int64_t, 2> in = {shape.h + x.pad.top + x.pad.bottom, shape.w + x.pad.left + x.pad.right};
  Pads pads = read_pads(node, x.rank, in, extent, stride);
  if (node.integer("ceil_mode", 0) != 0) pads = with_ceil(node, in, extent, stride, pads);
  return {.kernel_h = side(size[0]),
          .kernel_w = side(size[1]),
          .stride_h = side(stride[0]),
          .stride_w = side(stride[1]),
          .pad = {x.pad.top + side(pads.before[0]), x.pad.left + side(pads.before[1]),
                  x.pad.bottom + side(pads.after[0]), x.pad.right + side(pads.after[1])},
          .dilation_h = side(dilation[0]),
          .dilation_w = side(dilation[1])};
}

/// Reads the pads of a Pad before and behind each of `rank` dimensions. The file may give only some of them.
std::vector<int64_t> pads_of_all(NodeReader& node, int64_t rank) {
  const std::vector<int64_t> given = node.row(1, "pads");
  if (!node.has_input(3)) return given;
  const std::vector<int64_t> axes = node.integers_input(3);
  if (given.size() != 2 * axes.size())
    node.invalid(fmt::format("pads {} of axes {}; expected two for each", dims_text(given), dims_text(axes)));
  std::vector<int64_t> pads(2 * static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(positive_axis(node, axes[i], rank));
    pads[axis] = given[i];
    pads[axis + static_cast<size_t>(rank)] = given[i + axes.size()];
  }
  return pads;
}

/// Zeros around the pixels are kept in the value for the next window, which takes them as its padding. Channels of
/// zeros are the option A shortcut of He et al. 2015, usually after a Slice.
void pad(NodeReader& node) {
  OnnxValue x = node.activation(0);
  const std::string mode = node.text("mode", "constant");
  if (mode != "constant") node.refuse(fmt::format("mode '{}'; expected zeros (constant)", shown_name(mode)));
  const bool zeros = node.has_input(2) ? node.constant(2).real && node.constant(2).reals == std::vector<float>{0}
                                       : node.real("value", 0) == 0;
  if (!zeros) node.refuse("pads with another value than 0");
  std::vector<int64_t> pads = pads_of_all(node, x.rank);
  if (x.rank == 3 && pads.size() == 6) pads = {pads[0], pads[1], 0, pads[2], pads[3], pads[4], 0, pads[5]};
  const bool fits = x.rank >= 3 && pads.size() == 8 && std::all_of(pads.begin(), pads.end(), [](int64_t value) {
                      return value >= 0 && value <= kMaxDimension;
                    });
  const int64_t channels = fits ? pads[1] + pads[5] : 0, around = fits ? pads[2] + pads[3] + pads[6] + pads[7] : 0;
  if (!fits || pads[0] + pads[4] != 0 || pads[1] != pads[5] || (channels != 0 && around != 0)) {
    node.refuse(
        fmt::format("pads {}; expected eight numbers of 0 to {}: none for images, and zeros around the pixels, or "
                    "as many channels before as behind",
                    dims_text(pads), kMaxDimension));
  }
  if (channels != 0) return node.result(subsample(node, x, 1, 1, channels));
  x.pad = {side(pads[2]), side(pads[3]), side(pads[6]), side(pads[7])};
  x.direct = false;
  node.result(x);
}

void max_pool(NodeReader& node) {
  node.integer("storage_order", 0);  // concerns the second output, which octet does not give
  OnnxValue x = node.window_input(0);
  Window window = read_window(node, x, {});
  // Zeros of a Pad can be the maximum, unless another value of the window is never less.
  const Node& before = node.network().node(x);
  const bool positive = before.op == Op::relu || before.op == Op::relu6 ||
                        (before.op == Op::lookup && never_negative(before.function.kind));
  const Padding& pad = window.pad;
  const bool inside =
      2 * std::max(pad.top, pad.bottom) <= window.kernel_h && 2 * std::max(pad.left, pad.right) <= window.kernel_w;
  if (x.pad != Padding{} && !(positive && inside)) {
    x = node.activation(0);
    window = read_window(node, x, {});
  }
  node.make({.op = Op::max_pool, .inputs = {x.node}, .window = window}, x.rank);
}

void average_pool(NodeReader& node) {
  OnnxValue x = node.window_input(0);
  const Window window = read_window(node, x, {});
  const bool counts_padding = node.integer("count_include_pad", 0) != 0;
  if (window.pad != x.pad && !counts_padding)
    node.refuse(
        "count_include_pad 0 with padding: windows at the border take the average of fewer pixels; octet's averages "
        "count the zeros around the image (count_include_pad 1), which is another network");
  if (window == Window{}) {  // adaptive pooling to the size of the input
    x.direct = false;
    return node.result(x);
  }
  node.make({.op = Op::avg_pool, .inputs = {x.node}, .window = window}, x.rank);
}

void global_average_pool(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  if (x.rank < 3) node.refuse("its input is not [N, C, H, W] or [N, C, W]");
  node.make({.op = Op::global_avg_pool, .inputs = {x.node}}, x.rank);
}

void global_max_pool(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const Shape& all = node.network().shape(x);
  if (x.rank < 3) node.refuse("its input is not [N, C, H, W] or [N, C, W]");
  node.make({.op = Op::max_pool, .inputs = {x.node}, .window = {.kernel_h = all.h, .kernel_w = all.w}}, x.rank);
}

/// The mean of each channel; of an image whose pixels were put in a row, [N, C, H * W], too.
void reduce_mean(NodeReader& node) {
  const bool row = node.input(0).heads == 1 && !node.input(0).pixels_first && node.input(0).plain();
  const OnnxValue x = row ? node.head_input(0) : node.activation(0);
  std::vector<int64_t> axes = read_axes(node, x.rank);
  std::sort(axes.begin(), axes.end());
  if (node.integer("noop_with_empty_axes", 0) != 0 && axes.empty()) return identity(node);
  const std::vector<int64_t> pixels = x.rank == 3       ? std::vector<int64_t>{2}
                                      : x.channels_last ? std::vector<int64_t>{1, 2}
                                                        : std::vector<int64_t>{2, 3};
  if (axes == std::vector<int64_t>{x.channels_last ? 3 : 1})
    node.fail(fmt::format("takes the mean over the channels, as in a LayerNormalization, which {}", kNoNormalization));
  if (x.rank < 3 || axes != pixels)
    node.refuse(
        fmt::format("takes the mean over axes {}; expected height and width, {}", dims_text(axes), dims_text(pixels)));
  node.make({.op = Op::global_avg_pool, .inputs = {x.node}}, node.integer("keepdims", 1) == 0 ? 2 : x.rank);
}

}  // namespace octet::onnx_rules
