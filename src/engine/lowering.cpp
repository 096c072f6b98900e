// SPDX-License-Identifier: Apache-2.0
#include "src/engine/lowering.h"

#include <fmt/format.h>

#include <algorithm>

namespace octet {
namespace {

kernels::CodeInput code_input(const Int8Node& node) { return {node.out.zero_point, node.out.is_signed()}; }

kernels::CodeOutput code_output(const Int8Node& node) {
  return {node.out.zero_point, node.clamp_min, node.clamp_max, node.out.is_signed(), node.float_output};
}

}  // namespace

Error no_step(const Int8Node& node, std::string_view engine) {
  return promise_error(fmt::format("node '{}': engine {} has no step for int8 op number {}", node.name, engine,
                                   static_cast<int>(node.op)));
}

int Lowering::output_stride(int node) const {
  const Int8Node& n = graph.nodes[node];
  return n.float_output ? n.shape.c : stride(n.shape.c);
}

bool Lowering::flatten_is_alias(int node) const {
  const Int8Node& n = graph.nodes[node];
  if (n.op != Int8Op::flatten) return false;
  const Shape& in = input(node, 0).shape;
  if (in.h == 1 && in.w == 1) return true;
  return stride(in.c) == in.c && stride(n.shape.c) == n.shape.c;
}

kernels::Conv2dShape Lowering::conv2d_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = input(node, 0).shape;
  kernels::Conv2dShape s;
  s.in_c = in.c, s.in_h = in.h, s.in_w = in.w, s.in_stride = stride(in.c);
  s.out_c = n.shape.c, s.out_h = n.shape.h, s.out_w = n.shape.w, s.out_stride = output_stride(node);
  s.residual_stride = stride(n.shape.c);
  if (n.op == Int8Op::linear) return s;
  s.kernel_h = n.window.kernel_h, s.kernel_w = n.window.kernel_w;
  s.stride_h = n.window.stride_h, s.stride_w = n.window.stride_w;
  s.pad_h = n.window.pad.top, s.pad_w = n.window.pad.left;
  s.dilation_h = n.window.dilation_h, s.dilation_w = n.window.dilation_w;
  s.groups = n.groups;
  return s;
}

kernels::Conv2dParams Lowering::conv2d_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  kernels::Conv2dParams p{.x = code_input(input(node, 0)), .y = code_output(n)};
  p.has_residual = n.inputs.size() > 1;
  if (p.has_residual) p.residual = code_input(input(node, 1)), p.residual_multiplier = n.residual_multiplier;
  return p;
}

kernels::Conv2dWeights Lowering::conv2d_weights(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {n.weight.data(), n.multiplier.data(), n.bias.data()};
}

kernels::PoolShape Lowering::pool_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = input(node, 0).shape;
  kernels::PoolShape s;
  s.channels = in.c, s.in_h = in.h, s.in_w = in.w, s.in_stride = stride(in.c);
  s.out_h = n.shape.h, s.out_w = n.shape.w, s.out_stride = output_stride(node);
  if (n.op == Int8Op::global_avg_pool) {
    s.kernel_h = in.h, s.kernel_w = in.w;
    return s;
  }
  s.kernel_h = n.window.kernel_h, s.kernel_w = n.window.kernel_w;
  s.stride_h = n.window.stride_h, s.stride_w = n.window.stride_w;
  s.pad_h = n.window.pad.top, s.pad_w = n.window.pad.left;
  return s;
}

kernels::MaxPoolParams Lowering::max_pool_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {n.out.is_signed(), n.clamp_min, n.clamp_max};
}

kernels::AvgPoolParams Lowering::avg_pool_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), n.multiplier[0], code_output(n)};
}

kernels::BilinearShape Lowering::bilinear_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = input(node, 0).shape;
  return {in.c, in.h, in.w, stride(in.c), output_stride(node), n.factor_h, n.factor_w};
}

kernels::BilinearParams Lowering::bilinear_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), n.multiplier[0], code_output(n)};
}

kernels::ElementwiseShape Lowering::elementwise_shape(int node, size_t index) const {
  const Int8Node& n = graph.nodes[node];
  const int channels = input(node, index).shape.c;
  const bool y_is_slice = channels != n.shape.c;
  return {n.shape.h * n.shape.w, channels, stride(channels), stride(channels), output_stride(node), y_is_slice};
}

kernels::RequantizeParams Lowering::requantize_params(int node, size_t index) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, index)), n.multiplier[index], code_output(n)};
}

kernels::AddParams Lowering::add_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), code_input(input(node, 1)), n.multiplier[0], n.multiplier[1], code_output(n)};
}

kernels::ElementwiseShape Lowering::mul_shape(int node) const {
  kernels::ElementwiseShape shape = elementwise_shape(node, 0);
  shape.other_is_pixel = input(node, 1).shape != graph.nodes[node].shape;
  return shape;
}

kernels::MulParams Lowering::mul_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), code_input(input(node, 1)), n.multiplier[0], code_output(n)};
}

kernels::MatmulShape Lowering::matmul_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape &a = input(node, 0).shape, &b = input(node, 1).shape;
  return {.rows = a.h * a.w,
          .heads = n.groups,
          .terms = a.c / n.groups,
          .columns = n.shape.c / n.groups,
          .a_stride = stride(a.c),
          .b_stride = stride(b.c),
          .y_stride = output_stride(node),
          .transposed = n.transposed};
}

kernels::MatmulParams Lowering::matmul_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), code_input(input(node, 1)), n.multiplier[0], code_output(n)};
}

kernels::SoftmaxShape Lowering::softmax_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {n.shape.h * n.shape.w, n.groups, n.shape.c / n.groups, stride(n.shape.c), output_stride(node)};
}

kernels::SoftmaxParams Lowering::softmax_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  kernels::SoftmaxParams params;
  std::copy_n(n.exponentials.begin(), 256, params.exponential);
  params.x_is_signed = input(node, 0).out.is_signed();
  params.multiplier = n.multiplier[0];
  params.y = code_output(n);
  return params;
}

kernels::PreluParams Lowering::prelu_params(int node) const {
  const Int8Node& n = graph.nodes[node];
  return {code_input(input(node, 0)), n.multiplier[0], code_output(n)};
}

std::vector<float> Lowering::prelu_slopes(int node) const {
  const Int8Node& n = graph.nodes[node];
  std::vector<float> slopes(stride(n.shape.c));
  for (int c = 0; c < n.shape.c; ++c) slopes[c] = n.multiplier[1 + c / (n.shape.c / n.groups)];
  return slopes;
}

kernels::SubsamplePadShape Lowering::subsample_pad_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = input(node, 0).shape;
  return {.in_c = in.c,
          .in_w = in.w,
          .in_stride = stride(in.c),
          .out_c = n.shape.c,
          .out_h = n.shape.h,
          .out_w = n.shape.w,
          .out_stride = output_stride(node),
          .stride_h = n.window.stride_h,
          .stride_w = n.window.stride_w};
}

kernels::PickShape Lowering::pick_shape(int node) const {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = input(node, 0).shape;
  return {.in_w = in.w,
          .in_stride = stride(in.c),
          .first_channel = n.first_channel,
          .channels = n.shape.c,
          .out_h = n.shape.h,
          .out_w = n.shape.w,
          .out_stride = output_stride(node),
          .factor_h = n.factor_h,
          .factor_w = n.factor_w,
          .part = n.op == Int8Op::depth_to_space ? n.shape.c : 0,
          .groups = n.groups};
}

kernels::LookupTable Lowering::lookup_table(int node) const {
  kernels::LookupTable table;
  std::copy_n(graph.nodes[node].table.begin(), 256, table.byte);
  return table;
}

std::vector<uint8_t> Lowering::channel_tables(int node) const {
  const Int8Node& n = graph.nodes[node];
  std::vector<uint8_t> tables = n.table;
  tables.resize(static_cast<size_t>(stride(n.shape.c)) * 256);
  return tables;
}

kernels::SubsamplePadParams Lowering::subsample_pad_params(int node) const {
  return {static_cast<uint8_t>(graph.nodes[node].out.zero_point)};
}

}  // namespace octet
