// SPDX-License-Identifier: Apache-2.0
// ConvTranspose, DepthToSpace and SpaceToDepth. A transposed convolution becomes a convolution that computes all pixels
// of a block of the output as channels, and a depth_to_space (Shi et al. 2016, "Is the deconvolution layer the same as
// a convolutional layer?").
#include <fmt/format.h>

#include <array>

#include "src/net/onnx/rules.h"
#include "src/net/shapes.h"

namespace octet::onnx_rules {
namespace {

/// One axis of a transposed convolution. Pixel stride * q + a of the output is the sum of x[q - d] * w[stride * d + a +
/// before] over all d for which that weight exists: a convolution whose pixel r is q - d for d = last() - r.
struct Axis {
  int64_t in, kernel, stride, before, behind, extra;

  int64_t last() const { return (kernel - 1 - before) / stride; }
  int64_t window() const { return last() + (stride - 1 + before) / stride + 1; }
  int64_t out() const { return (in - 1) * stride + kernel + extra - before - behind; }
  int64_t pad_behind() const { return out() / stride - in - last() + window() - 1; }
  bool fits() const {
    return stride <= kernel && before < kernel && extra < stride && out() > 0 && out() % stride == 0 &&
           pad_behind() >= 0;
  }
};

std::array<Axis, 2> read_axes(NodeReader& node, const OnnxValue& x, const std::vector<int64_t>& weight) {
  const std::string mode = node.text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (mode != "NOTSET" && mode != "VALID" && !same) node.refuse(fmt::format("auto_pad '{}'", shown_name(mode)));
  const auto numbers = [&](const char* name, size_t count, int64_t min) {
    std::vector<int64_t> found = node.integers(name, std::vector<int64_t>(count, min));
    if (x.rank == 3 && node.has(name) && found.size() == count / 2)  // of rows: the vertical ones are left out
      for (size_t i = 0; i < count; i += 2) found.insert(found.begin() + static_cast<std::ptrdiff_t>(i), min);
    bool fit = found.size() == count;
    for (const int64_t number : found) fit = fit && number >= min && number <= kMaxDimension;
    if (!fit) node.invalid(fmt::format("{} {}; expected {} numbers from {} on", name, dims_text(found), count, min));
    return found;
  };
  const auto stride = numbers("strides", 2, 1), dilation = numbers("dilations", 2, 1);
  const auto pads = numbers("pads", 4, 0), extra = numbers("output_padding", 2, 0);
  const std::vector<int64_t> kernel = {weight[2], weight[3]};
  if (numbers("kernel_shape", 2, 1) != kernel && node.has("kernel_shape"))
    node.refuse("kernel_shape differs from the weights'");
  if (dilation != std::vector<int64_t>{1, 1}) node.refuse("dilations; expected none");
  const Shape& in = node.network().shape(x);
  std::array<Axis, 2> axes = {Axis{in.h, kernel[0], stride[0], pads[0], pads[2], extra[0]},
                              Axis{in.w, kernel[1], stride[1], pads[1], pads[3], extra[1]}};
  if (!same && !node.has("output_shape")) return axes;
  // The outputs are given, and the pads follow: an odd one is behind the image with SAME_UPPER, else before it.
  const std::vector<int64_t> given = numbers("output_shape", 2, 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    Axis& axis = axes[i];
    axis.before = axis.behind = 0;
    const int64_t total = axis.out() - (node.has("output_shape") ? given[i] : axis.in * axis.stride);
    if (total < 0) node.refuse("has more outputs than its window reaches");
    axis.before = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    axis.behind = total - axis.before;
  }
  return axes;
}

/// Converts the weights [C, K / groups, R, S] to those of the convolution, [outputs, C / groups, window, window]. Its
/// outputs are the pixels of a block one after the other, each with K channels; of several groups, K channels one after
/// the other, each with the pixels of a block.
std::vector<float> block_weights(const Constant& weight, int64_t groups, const Axis& v, const Axis& h) {
  const int64_t channels = weight.shape[0] / groups, outputs = weight.shape[1], pixels = v.stride * h.stride;
  std::vector<float> result;
  for (int64_t output = 0; output < pixels * outputs * groups; ++output) {
    const int64_t pixel = groups == 1 ? output / outputs : output % pixels;
    const int64_t group = output / pixels / outputs, k = groups == 1 ? output % outputs : output / pixels % outputs;
    for (int64_t c = group * channels; c < (group + 1) * channels; ++c)
      for (int64_t r = 0; r < v.window(); ++r)
        for (int64_t s = 0; s < h.window(); ++s) {
          const int64_t row = v.stride * (v.last() - r) + pixel / h.stride + v.before;
          const int64_t column = h.stride * (h.last() - s) + pixel % h.stride + h.before;
          const bool inside = row >= 0 && row < v.kernel && column >= 0 && column < h.kernel;
          const int64_t at = ((c * outputs + k) * v.kernel + row) * h.kernel + column;
          result.push_back(inside ? weight.reals[static_cast<size_t>(at)] : 0.0f);
        }
  }
  return result;
}

OnnxValue pixels_from_channels(NodeReader& node, const OnnxValue& x, int64_t vertical, int64_t horizontal) {
  std::vector<std::string> names = node.names();  // the node before may have taken them
  names.push_back(node.network().node(x).name + "/depth_to_space");
  return node.network().append({.op = Op::depth_to_space,
                                .inputs = {x.node},
                                .factor_h = static_cast<int>(vertical),
                                .factor_w = static_cast<int>(horizontal)},
                               names);
}

}  // namespace

void conv_transpose(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const Constant weight = filters(node, x);
  if (x.rank < 3 || weight.shape[0] != node.network().shape(x).c)
    node.refuse(fmt::format("weights {} do not fit its input", dims_text(weight.shape)));
  const auto [v, h] = read_axes(node, x, weight.shape);
  const int64_t groups = node.integer("group", 1), outputs = weight.shape[1] * groups, pixels = v.stride * h.stride;
  if (groups < 1 || weight.shape[0] % groups != 0 || (groups > 1 && node.network().marks != nullptr))
    node.refuse(
        fmt::format("{} groups of {} channels; expected, in a quantized network, one", groups, weight.shape[0]));
  if (!v.fits() || !h.fits() || pixels * outputs > kMaxDimension) {
    node.refuse(fmt::format("kernel {}x{}, strides {}x{}: expected outputs that are blocks of stride x stride pixels",
                            v.kernel, h.kernel, v.stride, h.stride));
  }
  const bool bias = node.has_input(2);
  std::vector<float> shifts;
  if (bias) {
    const std::vector<float> one = per_channel(node, 2, outputs);
    for (int64_t i = 0; i < pixels * outputs; ++i)
      shifts.push_back(one[static_cast<size_t>(groups == 1 ? i % outputs : i / pixels)]);
  }
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const Window window = {.kernel_h = number(v.window()),
                         .kernel_w = number(h.window()),
                         .pad = {number(v.last()), number(h.last()), number(v.pad_behind()), number(h.pad_behind())}};
  OnnxValue y = node.network().append({.op = Op::conv2d,
                                       .inputs = {x.node},
                                       .window = window,
                                       .out_channels = number(pixels * outputs),
                                       .groups = number(groups),
                                       .bias = bias},
                                      node.names(1));
  const std::string name = node.network().node(y).name;
  if (QdqMarks* marks = node.network().marks) {
    std::vector<float>& scales = marks->weight_scales[name];
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      const std::vector<float> one = weight_scales(node, 1, 1, outputs);
      scales.insert(scales.end(), one.begin(), one.end());
    }
  }
  node.network().put(name, "weight", {pixels * outputs, weight.shape[0] / groups, v.window(), h.window()},
                     block_weights(weight, groups, v, h));
  if (bias) node.network().put(name, "bias", {pixels * outputs}, shifts);
  if (pixels > 1 && groups > 1)
    y = node.network().append({.op = Op::channel_shuffle, .inputs = {y.node}, .groups = number(outputs)},
                              {node.name_of_output(0) + "/pixels"});
  if (pixels > 1) y = pixels_from_channels(node, y, v.stride, h.stride);
  y.direct = false;
  y.rank = x.rank;
  node.result(y);
}

/// A convolution copies the pixels of each block to consecutive channels, channel by channel; a shuffle then orders
/// them pixel by pixel.
void space_to_depth(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const Shape shape = node.network().shape(x);
  const int64_t size = node.integer("blocksize", 0);
  if (x.rank != 4 || size < 1 || shape.h % size != 0 || shape.w % size != 0)
    node.invalid(fmt::format("{}x{} pixels in blocks of {}", shape.h, shape.w, size));
  if (size == 1) return identity(node);
  const auto side = static_cast<int>(size);
  std::vector<int> all;
  for (int pixel = 0; pixel < side * side; ++pixel) all.push_back(pixel);
  const Window block{.kernel_h = side, .kernel_w = side, .stride_h = side, .stride_w = side};
  const OnnxValue picked = pick_pixels(node, x, block, all, {node.name_of_output(0) + "/pixels"});
  node.make({.op = Op::channel_shuffle, .inputs = {picked.node}, .groups = shape.c}, 4);
}

void depth_to_space(NodeReader& node) {
  OnnxValue x = node.activation(0);
  const int64_t size = node.integer("blocksize", 0), channels = node.network().shape(x).c;
  const std::string mode = node.text("mode", "DCR");
  if (x.rank != 4 || size < 1 || size * size > channels || channels % (size * size) != 0 ||
      (mode != "DCR" && mode != "CRD"))
    node.invalid(fmt::format("{} channels in blocks of {}, mode '{}'", channels, size, shown_name(mode)));
  if (mode == "CRD") {  // PyTorch's pixel_shuffle: the pixels of a channel are contiguous
    x = node.network().append(
        {.op = Op::channel_shuffle, .inputs = {x.node}, .groups = static_cast<int>(channels / (size * size))},
        node.names());
  }
  node.result(pixels_from_channels(node, x, size, size));
}

}  // namespace octet::onnx_rules
