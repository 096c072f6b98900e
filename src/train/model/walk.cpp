// SPDX-License-Identifier: Apache-2.0
// Walks a Graph node by node with LibTorch: one switch over the operators, with the modes of training around it.
#include <ATen/ops/add.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/model/model.h"
#include "src/train/model/operators.h"

namespace octet {
namespace {

at::Tensor batch_norm(const at::Tensor& x, const BatchNormTensors& t, const Node& node, const WalkMode& mode) {
  if (mode.batch_norm_training && mode.shares != nullptr)
    return shared_batch_norm(x, t, kBatchNormMomentum, node.epsilon, *mode.shares);
  return at::batch_norm(x, t.weight, t.bias, t.running_mean, t.running_var, mode.batch_norm_training,
                        kBatchNormMomentum, node.epsilon, /*cudnn_enabled=*/true);
}

/// Returns whether the node's backward pass needs its output, so that nobody may overwrite it.
bool keeps_output(const Node& node) {
  if (node.op == Op::relu || node.op == Op::relu6 || node.op == Op::softmax) return true;
  const FunctionKind f = node.function.kind;
  return node.op == Op::lookup && (f == FunctionKind::sigmoid || f == FunctionKind::tanh);
}

at::Tensor scaled(const at::Tensor& x, double scale) { return scale == 1 ? x : at::mul(x, scale); }

/// One node of a walk.
struct Step {
  const Node& node;
  int index;
  const Weights& weights;
  const std::vector<at::Tensor>& values;
  const WalkMode& mode;
  const WalkHooks& hooks;

  const at::Tensor& input(size_t i = 0) const { return values[node.inputs[i]]; }

  LayerParameters parameters() const {
    const LayerParameters own{weights.at(node.name + ".weight"),
                              node.bias ? weights.at(node.name + ".bias") : at::Tensor()};
    return hooks.parameters ? hooks.parameters(index, own) : own;
  }

  at::Tensor product(const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor x = hooks.input ? hooks.input(index, input()) : input();
    if (node.op == Op::linear) return at::linear(x.flatten(1), weight, bias).unsqueeze(-1).unsqueeze(-1);
    return convolve(x, weight, bias, node.window, node.groups);
  }

  at::Tensor finish(const Unfinished& y) const {
    return hooks.finish ? hooks.finish(index, y) : finished(y, node.activation);
  }

  /// Returns the output of a node with a weight.
  at::Tensor weighted() const {
    const LayerParameters layer = parameters();
    const bool then_batch_norm = !node.batch_norm.empty() && !layer.batch_norm_folded;
    // Autocast would round the bias to its type, and shift a whole channel where BatchNorm's mean is in it.
    const bool rounded = layer.batch_norm_folded && autocasts(input().device().type());
    const bool later = layer.bias.defined() && !then_batch_norm && (hooks.finish || rounded);
    Unfinished y{.value = product(layer.weight, later ? at::Tensor() : layer.bias), .owned = true};
    if (later) y.bias = layer.bias;
    if (node.inputs.size() == 2) y.residual = input(1);
    if (!then_batch_norm) return finish(y);
    const BatchNormTensors t = batch_norm_tensors(weights, node.batch_norm);
    if (hooks.normalize && mode.batch_norm_training && mode.shares == nullptr) {
      const at::Tensor output = hooks.normalize(index, y, t);
      if (output.defined()) return output;
    }
    y.value = batch_norm(y.value, t, node, mode);
    return finish(y);
  }

  /// Returns the value of a lookup: of float32 without gradients in double, as its table is made
  /// (src/quant/node_constants.h), so that the simulation gives the table's codes.
  at::Tensor function() const {
    const bool exact = !c10::GradMode::is_enabled() && input().scalar_type() == at::kFloat;
    const at::Tensor x = exact ? input().to(at::kDouble) : input();
    const auto by_channel = [&](const at::Tensor& value, const char* scale) {
      if (node.groups == 1) return value;
      return at::mul(value, weights.at(node.name + scale).to(value.scalar_type()).view({1, -1, 1, 1}));
    };
    const at::Tensor y = by_channel(applied(node.function, by_channel(x, ".input_scale")), ".output_scale");
    return exact ? y.to(at::kFloat) : y;
  }

  /// Returns the result of an operator without parameters, before what fuse may add to it.
  at::Tensor operate() const {
    const Window& w = node.window;
    switch (node.op) {
      case Op::input:
        break;
      case Op::conv2d:
      case Op::linear:
        break;  // see weighted()
      case Op::batch_norm:
        return batch_norm(input(), batch_norm_tensors(weights, node.name), node, mode);
      case Op::relu:
        return at::relu(input());
      case Op::relu6:
        return at::hardtanh(input(), 0, 6);
      case Op::add:
        return at::add(input(0), input(1));
      case Op::mul:
        return at::mul(input(0), input(1));
      case Op::concat: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(input(i));
        return at::cat(parts, 1);
      }
      case Op::max_pool:
        return max_pool(input(), w);
      case Op::avg_pool: {
        const PaddedImage x = padded(input(), w.pad, 0);
        return at::avg_pool2d(x.image, {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, x.pad);
      }
      case Op::global_avg_pool:
        return image_means(input());
      case Op::flatten:
        return input().flatten(1).unsqueeze(-1).unsqueeze(-1);
      case Op::dropout:
        return at::dropout(input(), node.dropout, mode.training);
      case Op::subsample_pad:
        return subsampled_padded(input(), node);
      case Op::requantize:  // a tensor of its own, whose gradient is that of what reads it, without its input's others
        return c10::GradMode::is_enabled() ? input().view_as(input()) : input();
      case Op::slice:
        return picked_channels(input(), node);
      case Op::resize:
        return repeated_pixels(input(), node);
      case Op::resize_bilinear:
        return interpolated_pixels(input(), node);
      case Op::channel_shuffle:
        return shuffled_channels(input(), node);
      case Op::depth_to_space:
        return channels_to_pixels(input(), node);
      case Op::matmul:
        return scaled(head_sums(input(0), input(1), node), node.scale);
      case Op::softmax:
        return from_heads(at::softmax(as_heads(input(), node.groups), 3), input().size(2), input().size(3));
      case Op::prelu:
        return at::prelu(input(), channel_slopes(input(), weights.at(node.name + ".weight")));
      case Op::lookup:
        return function();
    }
    throw usage_error("node '" + node.name + "': a second input node cannot be walked");
  }

  at::Tensor run() const {
    if (has_weight(node.op)) return weighted();
    if (hooks.operate) {
      std::vector<at::Tensor> inputs;
      for (const int n : node.inputs) inputs.push_back(values[n]);
      at::Tensor output = hooks.operate(index, inputs);
      if (output.defined()) return output;
    }
    Unfinished y{.value = operate()};
    // An identity or a view must not be overwritten.
    const bool is_input =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](int n) { return y.value.is_alias_of(values[n]); });
    y.owned = !is_input && !keeps_output(node);
    return finish(y);
  }
};

}  // namespace

at::Tensor add_up(const Unfinished& node) {
  const bool adds = node.bias.defined() || node.residual.defined();
  at::Tensor sum = node.owned || !adds ? node.value : node.value.clone();
  if (node.bias.defined()) sum.add_(node.bias.view({1, -1, 1, 1}));
  if (node.residual.defined()) sum.add_(node.residual);
  return sum;
}

at::Tensor finished(const Unfinished& node, Activation activation) {
  at::Tensor x = add_up(node);
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return node.owned ? at::relu_(x) : at::relu(x);
    case Activation::relu6:
      return node.owned ? at::hardtanh_(x, 0, 6) : at::hardtanh(x, 0, 6);
  }
  return x;
}

namespace {

/// Walks the nodes behind part.first, or from the input on, to part.last. Returns the values of all nodes, of which
/// those that the graph or the part ends with are still there.
std::vector<at::Tensor> walk_nodes(const Graph& graph, const Weights& weights, const GraphPart& part,
                                   const at::Tensor& x, const WalkMode& mode, const WalkHooks& hooks) {
  const std::vector<int> last = last_readers(graph);
  std::vector<at::Tensor> values(graph.nodes.size());
  if (part.first > 0) values[part.first] = x;
  for (int n = part.first > 0 ? part.first + 1 : 0; n <= part.last; ++n) {
    const Node& node = graph.nodes[n];
    at::Tensor y = n == 0 ? x : Step{node, n, weights, values, mode, hooks}.run();
    values[n] = hooks.output ? hooks.output(n, std::move(y)) : std::move(y);
    for (int input : node.inputs)
      if (last[input] == n && input != part.last) values[input].reset();
  }
  return values;
}

}  // namespace

at::Tensor walk(const Graph& graph, const Weights& weights, const at::Tensor& x, const WalkMode& mode,
                const WalkHooks& hooks, int after) {
  const GraphPart part{.first = after, .last = static_cast<int>(graph.nodes.size()) - 1};
  const std::vector<at::Tensor> values = walk_nodes(graph, weights, part, x, mode, hooks);
  std::vector<at::Tensor> outputs;
  for (const int output : graph.outputs) outputs.push_back(values[output].flatten(1));
  return outputs.size() == 1 ? outputs.front() : at::cat(outputs, 1);
}

at::Tensor walk_node(const Graph& graph, const Weights& weights, int node, const std::vector<at::Tensor>& values,
                     const WalkHooks& hooks) {
  return Step{graph.nodes[node], node, weights, values, {}, hooks}.run();
}

at::Tensor walk_part(const Graph& graph, const Weights& weights, const GraphPart& part, const at::Tensor& x,
                     const WalkMode& mode, const WalkHooks& hooks) {
  return walk_nodes(graph, weights, part, x, mode, hooks)[part.last];
}

std::vector<int> cut_points(const Graph& graph) {
  const std::vector<int> last = last_readers(graph);
  std::vector<int> cuts;
  int last_reader = 0;  // of all earlier outputs
  for (int n = 0; n + 1 < static_cast<int>(graph.nodes.size()); ++n) {
    if (n > 0 && last_reader <= n && last[n] < static_cast<int>(graph.nodes.size())) cuts.push_back(n);
    last_reader = std::max(last_reader, last[n]);
  }
  return cuts;
}

std::string first_non_finite(const Graph& graph, const Weights& weights, const at::Tensor& x, const WalkMode& mode) {
  const c10::NoGradGuard no_grad;
  const auto is_finite = [](const at::Tensor& tensor) { return tensor.isfinite().all().item<bool>(); };
  std::string found;
  const auto look = [&](int node, at::Tensor output) {
    if (!found.empty() || is_finite(output)) return output;
    const std::string& name = graph.nodes[node].name;
    const auto weight = weights.find(name + ".weight");
    const bool bad_weight = weight != weights.end() && !is_finite(weight->second);
    found = "node '" + name + (bad_weight ? "', its weights" : "'");
    return output;
  };
  WalkHooks hooks;
  hooks.output = look;
  walk(graph, weights, x, mode, hooks);
  return found;
}

}  // namespace octet
