// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/operators.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <utility>

#include "src/net/shapes.h"
#if OCTET_CUDA
#include <ATen/ops/empty.h>

#include "src/train/model/device.h"
#endif

namespace octet {
namespace {

/// LibTorch 2.11 convolves images of one channel into one column wrongly on the CPU (float32, stride 2) where strides,
/// of the image or of the weight, are those of channels-last memory. One channel's memory is the same in either order.
bool needs_plain_strides(const at::Tensor& x, const Window& w) {
  const Shape image = {1, static_cast<int>(x.size(2)), static_cast<int>(x.size(3))};
  return x.is_cpu() && x.size(1) == 1 && window_output(w, image).w == 1;
}

at::Tensor plain_strides(const at::Tensor& x) { return x.contiguous().view(x.sizes()); }

/// Interpolates along an axis of x (not the first or last), with weights that add up to 2 * factor * unit.
at::Tensor interpolated_axis(const at::Tensor& x, int64_t axis, int factor, double unit) {
  const int64_t size = x.size(axis);
  const at::Tensor before = at::cat({x.narrow(axis, 0, 1), x.narrow(axis, 0, size - 1)}, axis);
  const at::Tensor behind = at::cat({x.narrow(axis, 1, size - 1), x.narrow(axis, size - 1, 1)}, axis);
  std::vector<at::Tensor> parts;
  for (int part = 0; part < factor; ++part) {
    const int place = 2 * part + 1 - factor;  // from the centre of the input's pixel, in its 1 / (2 factor)
    const int weight = place < 0 ? -place : place;
    const at::Tensor own = x.mul((2 * factor - weight) * unit);
    parts.push_back(place == 0 ? own : own.add(place < 0 ? before : behind, weight * unit));
  }
  return at::stack(parts, axis + 1).flatten(axis, axis + 1);
}

at::Tensor interpolated(const at::Tensor& x, const Node& node, double unit_h, double unit_w) {
  const at::Tensor rows = interpolated_axis(x.permute({0, 2, 3, 1}), 1, node.factor_h, unit_h);
  return interpolated_axis(rows, 2, node.factor_w, unit_w).permute({0, 3, 1, 2});
}

/// Keeps nothing of what it is given.
struct MadeAgain : torch::autograd::SavedVariableHooks {
  explicit MadeAgain(std::function<at::Tensor()> again_) : again(std::move(again_)) {}
  void call_pack_hook(const at::Tensor&) override {}
  at::Tensor call_unpack_hook() override { return again(); }

  const std::function<at::Tensor()> again;
};

}  // namespace

at::Tensor applied(const Function& function, const at::Tensor& x) {
  switch (function.kind) {
    case FunctionKind::silu:
      return at::silu(x);
    case FunctionKind::hard_swish:
      return at::hardswish(x);
    case FunctionKind::hard_sigmoid:
      return at::hardsigmoid(x);
    case FunctionKind::sigmoid:
      return at::sigmoid(x);
    case FunctionKind::tanh:
      return at::tanh(x);
    case FunctionKind::gelu:
      return at::gelu(x);
    case FunctionKind::leaky_relu:
      return at::leaky_relu(x, function.slope);
    case FunctionKind::mish:
      return at::mish(x);
    case FunctionKind::softplus:
      return at::softplus(x);
    case FunctionKind::elu:
      return at::elu(x);
  }
  return x;
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Window& w,
                    int groups) {
  const bool plain = needs_plain_strides(x, w);
  const PaddedImage from = padded(x, w.pad, 0);
  return at::conv2d(plain ? plain_strides(from.image) : from.image, plain ? plain_strides(weight) : weight, bias,
                    {w.stride_h, w.stride_w}, from.pad, {w.dilation_h, w.dilation_w}, groups);
}

PaddedImage padded(const at::Tensor& x, const Padding& pad, double value) {
  if (pad.is_even()) return {x, {pad.top, pad.left}};
  return {at::constant_pad_nd(x, {pad.left, pad.right, pad.top, pad.bottom}, value), {0, 0}};
}

bool make_input_again(const at::Tensor& y, const at::Tensor& x, std::function<at::Tensor()> again) {
  auto* const convolution = dynamic_cast<torch::autograd::generated::ConvolutionBackward0*>(y.grad_fn().get());
  if (convolution == nullptr) return false;
  const at::Tensor kept = convolution->input_.unpack();
  if (!kept.is_same(x)) return false;
  convolution->input_.register_hooks(std::make_unique<MadeAgain>(std::move(again)));
  return true;
}

std::vector<bool> can_be_made_again(const Graph& graph) {
  const std::vector<int> readers = reader_counts(graph);
  std::vector<bool> can(graph.nodes.size());
  for (const Node& node : graph.nodes)
    if (node.op == Op::conv2d && node.window.pad.is_even()) can[node.inputs[0]] = readers[node.inputs[0]] == 1;
  for (const int output : graph.outputs) can[output] = false;
  return can;
}

at::Tensor picked_channels(const at::Tensor& x, const Node& node) {
  return x.slice(1, node.first_channel, node.first_channel + node.out_channels).contiguous(x.suggest_memory_format());
}

at::Tensor subsampled_padded(const at::Tensor& x, const Node& node) {
  const int64_t added = node.out_channels - x.size(1), before = added / 2;
  const at::Tensor picked =
      x.slice(2, 0, c10::nullopt, node.window.stride_h).slice(3, 0, c10::nullopt, node.window.stride_w);
  return at::constant_pad_nd(picked, {0, 0, 0, 0, before, added - before}, 0);
}

at::Tensor repeated_pixels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .unsqueeze(3)
      .unsqueeze(2)
      .expand({n, h, node.factor_h, w, node.factor_w, c})
      .reshape({n, h * node.factor_h, w * node.factor_w, c})
      .permute({0, 3, 1, 2});
}

at::Tensor shuffled_channels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .reshape({n, h, w, node.groups, c / node.groups})
      .transpose(3, 4)
      .reshape({n, h, w, c})
      .permute({0, 3, 1, 2});
}

at::Tensor channels_to_pixels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .reshape({n, h, w, node.factor_h, node.factor_w, node.shape.c})
      .transpose(2, 3)
      .reshape({n, h * node.factor_h, w * node.factor_w, node.shape.c})
      .permute({0, 3, 1, 2});
}

at::Tensor interpolated_pixels(const at::Tensor& x, const Node& node) {
  return interpolated(x, node, 0.5 / node.factor_h, 0.5 / node.factor_w);
}

at::Tensor interpolated_sums(const at::Tensor& x, const Node& node) { return interpolated(x, node, 1, 1); }

at::Tensor as_heads(const at::Tensor& x, int heads) {
  const at::Tensor pixels = x.permute({0, 2, 3, 1});
  return pixels.reshape({x.size(0), x.size(2) * x.size(3), heads, x.size(1) / heads}).transpose(1, 2);
}

at::Tensor from_heads(const at::Tensor& x, int64_t height, int64_t width) {
  return x.transpose(1, 2).reshape({x.size(0), height, width, x.size(1) * x.size(3)}).permute({0, 3, 1, 2});
}

at::Tensor head_sums(const at::Tensor& a, const at::Tensor& b, const Node& node) {
  const at::Tensor rows = as_heads(a, node.groups), columns = as_heads(b, node.groups);
  return from_heads(at::matmul(rows, node.transposed ? columns.transpose(2, 3) : columns), a.size(2), a.size(3));
}

at::Tensor channel_slopes(const at::Tensor& x, const at::Tensor& slopes) {
  const int64_t groups = slopes.size(0);
  return slopes.to(x.scalar_type()).unsqueeze(1).expand({groups, x.size(1) / groups}).reshape({-1});
}

#if OCTET_CUDA
bool is_image_channels(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return x.is_cuda() && (type == at::kHalf || type == at::kBFloat16) && x.dim() == 4 && x.numel() > 0 &&
         x.size(1) % 8 == 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

kernels::ImageChannels image_channels(const at::Tensor& x) {
  return {.images = x.size(0),
          .pixels = static_cast<int>(x.size(2) * x.size(3)),
          .channels = static_cast<int>(x.size(1)),
          .type = value_type(x)};
}

kernels::BatchNormShare batch_norm_share(const at::Tensor& x) {
  return {.x = x.const_data_ptr(),
          .rows = x.numel() / x.size(1),
          .channels = static_cast<int>(x.size(1)),
          .type = value_type(x)};
}

at::Tensor batch_norm_parts(const at::Tensor& x) {
  const int64_t channels = x.size(1),
                parts = kernels::batch_norm_parts(x.numel() / channels, static_cast<int>(channels));
  return at::empty({parts, 2, channels}, x.options().dtype(at::kFloat));
}
#endif

}  // namespace octet
