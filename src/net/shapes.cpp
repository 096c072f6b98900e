// SPDX-License-Identifier: Apache-2.0
#include "src/net/shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/net/op_traits.h"

namespace octet {
namespace {

/// One axis of a window.
struct Axis {
  int64_t in, kernel, stride, before, behind, dilation;
  int64_t padded() const { return in + before + behind; }
  int64_t extent() const { return dilation * (kernel - 1) + 1; }  ///< pixels from first to last tap
};

Axis vertical(const Window& w, const Shape& in) {
  return {in.h, w.kernel_h, w.stride_h, w.pad.top, w.pad.bottom, w.dilation_h};
}
Axis horizontal(const Window& w, const Shape& in) {
  return {in.w, w.kernel_w, w.stride_w, w.pad.left, w.pad.right, w.dilation_w};
}

bool in_range(int64_t value, int64_t lo) { return value >= lo && value <= kMaxDimension; }

int axis_output(const Axis& a) { return static_cast<int>((a.padded() - a.extent()) / a.stride + 1); }

std::string axis_fault(const Axis& a, Op op) {
  const bool pool = op == Op::max_pool || op == Op::avg_pool;
  if (!in_range(a.kernel, 1)) return fmt::format("kernel {} is not in 1..{}", a.kernel, kMaxDimension);
  if (!in_range(a.stride, 1)) return fmt::format("stride {} is not in 1..{}", a.stride, kMaxDimension);
  for (const int64_t pad : {a.before, a.behind}) {
    if (!in_range(pad, 0)) return fmt::format("pad {} is not in 0..{}", pad, kMaxDimension);
  }
  const int64_t halved = op == Op::max_pool ? a.before : std::max(a.before, a.behind);
  if (pool && 2 * halved > a.kernel) return fmt::format("pad {} is more than half of kernel {}", halved, a.kernel);
  if (!in_range(a.dilation, 1)) return fmt::format("dilation {} is not in 1..{}", a.dilation, kMaxDimension);
  if (pool && a.dilation != 1) return fmt::format("dilation {}: pooling windows have none", a.dilation);
  if (a.padded() < a.extent()) {
    return fmt::format("the window spans {} pixels, the padded image has {}", a.extent(), a.padded());
  }
  if (pool && (axis_output(a) - int64_t{1}) * a.stride >= a.in + a.before)
    return fmt::format("pad {} behind an image of {} pixels: the last window has none of them", a.behind, a.in);
  return "";
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("[{}, {}, {}]", shape.c, shape.h, shape.w); }

std::string shape_fault(const Shape& shape) {
  for (const int dimension : {shape.c, shape.h, shape.w}) {
    if (!in_range(dimension, 1)) {
      return fmt::format("shape {}: {} is not in 1..{}", to_string(shape), dimension, kMaxDimension);
    }
  }
  if (shape.elements() > kMaxElements) {
    return fmt::format("shape {} has more than {} elements", to_string(shape), kMaxElements);
  }
  return "";
}

std::string window_fault(const Window& window, const Shape& in, Op op) {
  const std::string fault = axis_fault(vertical(window, in), op);
  return fault.empty() ? axis_fault(horizontal(window, in), op) : fault;
}

Shape window_output(const Window& window, const Shape& in) {
  return {0, axis_output(vertical(window, in)), axis_output(horizontal(window, in))};
}

Shape subsample_output(const Window& window, const Shape& in) {
  return {0, (in.h - 1) / window.stride_h + 1, (in.w - 1) / window.stride_w + 1};
}

namespace {

OutputShape refuse(std::string fault) { return {{}, std::move(fault)}; }

std::string out_channels_fault(const ShapeAttributes& node) {
  if (node.out_channels >= 1 && node.out_channels <= kMaxDimension) return "";
  return fmt::format("out_channels {} is not in 1..{}", node.out_channels, kMaxDimension);
}

OutputShape windowed(const ShapeAttributes& node, const Shape& in, int channels) {
  if (const std::string fault = window_fault(node.window, in, node.op); !fault.empty())
    return refuse(fmt::format("input {}: {}", to_string(in), fault));
  Shape out = window_output(node.window, in);
  out.c = channels;
  return {out, ""};
}

OutputShape convolution(const ShapeAttributes& node, std::span<const Shape> inputs) {
  const Shape& in = inputs[0];
  if (std::string fault = out_channels_fault(node); !fault.empty()) return refuse(std::move(fault));
  OutputShape out = windowed(node, in, node.out_channels);
  if (!out.fault.empty()) return out;
  if (node.groups < 1 || in.c % node.groups != 0 || node.out_channels % node.groups != 0) {
    return refuse(
        fmt::format("groups {} must divide {} input and {} output channels", node.groups, in.c, node.out_channels));
  }
  if (inputs.size() == 2 && inputs[1] != out.shape) {
    return refuse(fmt::format("gives {}, and its residual is {}", to_string(out.shape), to_string(inputs[1])));
  }
  return out;
}

OutputShape linear(const ShapeAttributes& node, const Shape& in) {
  if (std::string fault = out_channels_fault(node); !fault.empty()) return refuse(std::move(fault));
  if (in.h == 1 && in.w == 1) return {{node.out_channels, 1, 1}, ""};
  return refuse(fmt::format("input {} is not flat: put a flatten or global_avg_pool before it", to_string(in)));
}

OutputShape flattened(const Shape& in) {
  if (in.elements() <= kMaxDimension) return {{static_cast<int>(in.elements()), 1, 1}, ""};
  return refuse(fmt::format("input {} has more than {} elements: pool it first", to_string(in), kMaxDimension));
}

OutputShape subsampled(const ShapeAttributes& node, const Shape& in) {
  if (std::string fault = out_channels_fault(node); !fault.empty()) return refuse(std::move(fault));
  const Window strides{.stride_h = node.window.stride_h, .stride_w = node.window.stride_w};
  if (std::string fault = window_fault(strides, in, node.op); !fault.empty()) return refuse(std::move(fault));
  if (node.out_channels < in.c || (node.out_channels - in.c) % 2 != 0)
    return refuse(fmt::format("cannot pad {} channels evenly to {}", in.c, node.out_channels));
  Shape out = subsample_output(node.window, in);
  out.c = node.out_channels;
  return {out, ""};
}

OutputShape sum(const Shape& a, const Shape& b) {
  if (a == b) return {a, ""};
  return refuse(fmt::format("shapes {} and {} differ", to_string(a), to_string(b)));
}

OutputShape product(const Shape& a, const Shape& b) {
  if (b == a || b == Shape{a.c, 1, 1}) return {a, ""};
  return refuse(fmt::format("cannot multiply {} by {}: the second input must be equal or [{}, 1, 1]", to_string(a),
                            to_string(b), a.c));
}

OutputShape concatenated(std::span<const Shape> inputs) {
  Shape out = inputs[0];
  for (const Shape& in : inputs.subspan(1)) {
    if (in.h != out.h || in.w != out.w)
      return refuse(fmt::format("sizes of {} and {} differ", to_string(out), to_string(in)));
    out.c += in.c;
    if (out.c > kMaxDimension) return refuse(fmt::format("more than {} channels", kMaxDimension));
  }
  return {out, ""};
}

OutputShape sliced(const ShapeAttributes& node, const Shape& in) {
  if (node.first_channel >= 0 && node.out_channels >= 1 && node.first_channel <= in.c - node.out_channels)
    return {{node.out_channels, in.h, in.w}, ""};
  return refuse(fmt::format("{} channels from {} on are not among {}", node.out_channels, node.first_channel, in.c));
}

OutputShape resized(const ShapeAttributes& node, const Shape& in) {
  for (const auto& [factor, size] : {std::pair{node.factor_h, in.h}, std::pair{node.factor_w, in.w}}) {
    if (factor < 1 || factor > kMaxDimension / size)
      return refuse(fmt::format("{} pixels cannot become {} times as many", size, factor));
  }
  return {{in.c, in.h * node.factor_h, in.w * node.factor_w}, ""};
}

/// The weights of four pixels add up to 4 * factor_h * factor_w (kernels/operators/bilinear.h), and float32 holds
/// integers up to 2^24 exactly.
OutputShape interpolated(const ShapeAttributes& node, const Shape& in) {
  constexpr int64_t kExact = int64_t{1} << 24, kLargestCode = 255, kMaxProduct = kExact / (4 * kLargestCode);
  OutputShape out = resized(node, in);
  if (!out.fault.empty() || static_cast<int64_t>(node.factor_h) * node.factor_w <= kMaxProduct) return out;
  return refuse(fmt::format("{} x {} times as many pixels: above {} float32 cannot hold the sums; resize in two steps",
                            node.factor_h, node.factor_w, kMaxProduct));
}

OutputShape pixels_from_channels(const ShapeAttributes& node, const Shape& in) {
  OutputShape out = resized(node, in);
  const int64_t pixels = static_cast<int64_t>(node.factor_h) * node.factor_w;
  if (!out.fault.empty()) return out;
  if (in.c % pixels != 0)
    return refuse(fmt::format("{} channels are not {} x {} pixels", in.c, node.factor_h, node.factor_w));
  out.shape.c = static_cast<int>(in.c / pixels);
  return out;
}

std::string groups_fault(int groups, const Shape& in) {
  if (groups >= 1 && in.c % groups == 0) return "";
  return fmt::format("{} channels are not {} groups of one size", in.c, groups);
}

OutputShape grouped(const ShapeAttributes& node, const Shape& in) { return {in, groups_fault(node.groups, in)}; }

/// A lookup has one function for all channels, or one for each.
OutputShape looked_up(const ShapeAttributes& node, const Shape& in) {
  if (node.groups == 1 || node.groups == in.c) return {in, ""};
  return refuse(fmt::format("groups {}: 1, or one for each of {} channels", node.groups, in.c));
}

OutputShape normalized(const ShapeAttributes& node, const Shape& in) {
  if (std::string fault = groups_fault(node.groups, in); !fault.empty()) return refuse(std::move(fault));
  const int channels = in.c / node.groups;
  if (channels <= kMaxSoftmaxChannels) return {in, ""};
  return refuse(fmt::format("over {} channels: above {} sums can leave int32", channels, kMaxSoftmaxChannels));
}

OutputShape matrix_product(const ShapeAttributes& node, const Shape& a, const Shape& b) {
  const int groups = node.groups;
  for (const Shape& shape : {a, b})
    if (std::string fault = groups_fault(groups, shape); !fault.empty()) return refuse(std::move(fault));
  const int64_t pixels = static_cast<int64_t>(b.h) * b.w;
  const int terms = a.c / groups;
  if (node.transposed && a.c != b.c)
    return refuse(
        fmt::format("cannot multiply {} by the pixels of {}: the channels differ", to_string(a), to_string(b)));
  if (!node.transposed && terms != pixels)
    return refuse(
        fmt::format("cannot multiply {} by {} in {} groups: {} channels a group, needs one for each of {} pixels",
                    to_string(a), to_string(b), groups, terms, pixels));
  if (node.transposed && pixels > kMaxDimension / groups)
    return refuse(fmt::format("{} groups of {} pixels as channels: more than {}", groups, pixels, kMaxDimension));
  if (terms > kMaxMatmulTerms)
    return refuse(fmt::format("sums of {} products: above {} they can leave int32", terms, kMaxMatmulTerms));
  return {{node.transposed ? static_cast<int>(groups * pixels) : b.c, a.h, a.w}, ""};
}

}  // namespace

ShapeAttributes shape_attributes(const Node& node) {
  return {node.op,       node.window,   node.out_channels, node.first_channel,
          node.factor_h, node.factor_w, node.groups,       node.transposed};
}

ShapeAttributes shape_attributes(const Int8Node& node) {
  return {traits(node.op).op, node.window,   node.shape.c, node.first_channel,
          node.factor_h,      node.factor_w, node.groups,  node.transposed};
}

OutputShape output_shape(const ShapeAttributes& node, std::span<const Shape> inputs) {
  const Shape& in = inputs[0];
  switch (node.op) {
    case Op::input:
      return refuse("has no inputs to take its shape from");
    case Op::conv2d:
      return convolution(node, inputs);
    case Op::linear:
      return linear(node, in);
    case Op::max_pool:
    case Op::avg_pool:
      return windowed(node, in, in.c);
    case Op::global_avg_pool:
      return {{in.c, 1, 1}, ""};
    case Op::flatten:
      return flattened(in);
    case Op::subsample_pad:
      return subsampled(node, in);
    case Op::slice:
      return sliced(node, in);
    case Op::resize:
      return resized(node, in);
    case Op::resize_bilinear:
      return interpolated(node, in);
    case Op::channel_shuffle:
    case Op::prelu:
      return grouped(node, in);
    case Op::depth_to_space:
      return pixels_from_channels(node, in);
    case Op::add:
      return sum(in, inputs[1]);
    case Op::mul:
      return product(in, inputs[1]);
    case Op::concat:
      return concatenated(inputs);
    case Op::matmul:
      return matrix_product(node, in, inputs[1]);
    case Op::softmax:
      return normalized(node, in);
    case Op::batch_norm:
    case Op::relu:
    case Op::relu6:
    case Op::dropout:
    case Op::requantize:
      return {in, ""};
    case Op::lookup:
      return looked_up(node, in);
  }
  return refuse("unknown op");
}

double sum_divisor(const ShapeAttributes& node, const Shape& in) {
  switch (node.op) {
    case Op::avg_pool:
      return static_cast<double>(node.window.kernel_h) * node.window.kernel_w;
    case Op::global_avg_pool:
      return static_cast<double>(in.h) * in.w;
    case Op::resize_bilinear:
      return 4.0 * node.factor_h * node.factor_w;
    default:
      return 1;
  }
}

}  // namespace octet
