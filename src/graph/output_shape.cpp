#include "src/graph/output_shape.h"

#include <fmt/format.h>

#include "src/graph/limits.h"
#include "src/graph/op_traits.h"
#include "src/graph/window.h"

namespace octet {
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

OutputShape matrix_product(const ShapeAttributes& node, const Shape& a, const Shape& b) {
  if (std::string fault = matmul_fault(node.groups, node.transposed, a, b); !fault.empty())
    return refuse(std::move(fault));
  return {{node.transposed ? node.groups * b.h * b.w : b.c, a.h, a.w}, ""};
}

/// `out`, unless there is a fault.
OutputShape unless(std::string fault, const Shape& out) { return {out, std::move(fault)}; }

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
  const int fh = node.factor_h, fw = node.factor_w;
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
      return unless(slice_fault(node.first_channel, node.out_channels, in), {node.out_channels, in.h, in.w});
    case Op::resize:
      if (std::string fault = resize_fault(fh, fw, in); !fault.empty()) return refuse(std::move(fault));
      return {{in.c, in.h * fh, in.w * fw}, ""};
    case Op::resize_bilinear:
      if (std::string fault = bilinear_fault(fh, fw, in); !fault.empty()) return refuse(std::move(fault));
      return {{in.c, in.h * fh, in.w * fw}, ""};
    case Op::channel_shuffle:
      return unless(shuffle_fault(node.groups, in), in);
    case Op::depth_to_space:
      if (std::string fault = depth_to_space_fault(fh, fw, in); !fault.empty()) return refuse(std::move(fault));
      return {{in.c / (fh * fw), in.h * fh, in.w * fw}, ""};
    case Op::add:
      return sum(in, inputs[1]);
    case Op::mul:
      return product(in, inputs[1]);
    case Op::concat:
      return concatenated(inputs);
    case Op::matmul:
      return matrix_product(node, in, inputs[1]);
    case Op::softmax:
      return unless(softmax_fault(node.groups, in), in);
    case Op::batch_norm:
    case Op::relu:
    case Op::relu6:
    case Op::dropout:
    case Op::requantize:
    case Op::lookup:
      return {in, ""};
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
