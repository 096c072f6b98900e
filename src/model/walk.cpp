#include <ATen/ops/add.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>

#include "src/common/error.h"
#include "src/model/model.h"

namespace octet {
namespace {

constexpr double kBatchNormMomentum = 0.1;

at::Tensor batch_norm(const at::Tensor& x, const Weights& weights, const std::string& name, bool training) {
  return at::batch_norm(x, weights.at(name + ".weight"), weights.at(name + ".bias"), weights.at(name + ".running_mean"),
                        weights.at(name + ".running_var"), training, kBatchNormMomentum, kBatchNormEps,
                        /*cudnn_enabled=*/true);
}

at::Tensor subsample_pad(const at::Tensor& x, const Node& node) {
  const int64_t added = node.out_channels - x.size(1), before = added / 2;
  const at::Tensor picked =
      x.slice(2, 0, c10::nullopt, node.window.stride_h).slice(3, 0, c10::nullopt, node.window.stride_w);
  return at::constant_pad_nd(picked, {0, 0, 0, 0, before, added - before}, 0);
}

struct Step {
  const Node& node;
  int index;
  const Weights& weights;
  const std::vector<at::Tensor>& values;
  const WalkMode& mode;
  const WalkHooks& hooks;

  const at::Tensor& input(size_t i = 0) const { return values[node.inputs[i]]; }

  at::Tensor weight() const {
    const at::Tensor& w = weights.at(node.name + ".weight");
    return hooks.weight ? hooks.weight(index, w) : w;
  }

  c10::optional<at::Tensor> bias() const {
    return node.bias ? c10::optional<at::Tensor>(weights.at(node.name + ".bias")) : c10::nullopt;
  }

  at::Tensor conv2d() const {
    const Window& w = node.window;
    return at::conv2d(input(), weight(), bias(), {w.stride_h, w.stride_w}, {w.pad_h, w.pad_w},
                      {w.dilation_h, w.dilation_w}, node.groups);
  }

  at::Tensor linear() const { return at::linear(input().flatten(1), weight(), bias()).unsqueeze(-1).unsqueeze(-1); }

  /// The operator itself; everything fuse may add to it comes in run().
  at::Tensor operate() const {
    const Window& w = node.window;
    switch (node.op) {
      case Op::input:
        break;
      case Op::conv2d:
        return conv2d();
      case Op::linear:
        return linear();
      case Op::batch_norm:
        return batch_norm(input(), weights, node.name, mode.batch_norm_training);
      case Op::relu:
        return at::relu(input());
      case Op::relu6:
        return at::hardtanh(input(), 0, 6);
      case Op::add:
        return at::add(input(0), input(1));
      case Op::concat: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(input(i));
        return at::cat(parts, 1);
      }
      case Op::max_pool:
        return at::max_pool2d(input(), {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, {w.pad_h, w.pad_w},
                              {w.dilation_h, w.dilation_w});
      case Op::avg_pool:
        return at::avg_pool2d(input(), {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, {w.pad_h, w.pad_w});
      case Op::global_avg_pool:
        return input().mean({2, 3}, /*keepdim=*/true);
      case Op::flatten:
        return input().flatten(1).unsqueeze(-1).unsqueeze(-1);
      case Op::dropout:
        return at::dropout(input(), node.dropout, mode.training);
      case Op::subsample_pad:
        return subsample_pad(input(), node);
    }
    throw usage_error("node '" + node.name + "': a second input node cannot be walked");
  }

  at::Tensor run() const {
    at::Tensor y = operate();
    const bool weighted = node.op == Op::conv2d || node.op == Op::linear;
    if (!node.batch_norm.empty()) y = batch_norm(y, weights, node.batch_norm, mode.batch_norm_training);
    if (weighted && node.inputs.size() == 2) y.add_(input(1));
    // flatten and dropout may return their input's own memory, relu's backward reads its output; no other operator's
    // does.
    const bool owned = node.op != Op::flatten && node.op != Op::dropout && node.op != Op::relu && node.op != Op::relu6;
    if (hooks.activation) return hooks.activation(index, std::move(y), owned);
    return activate(std::move(y), node.activation, owned);
  }
};

}  // namespace

at::Tensor activate(at::Tensor x, Activation activation, bool owned) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return owned ? at::relu_(x) : at::relu(x);
    case Activation::relu6:
      return owned ? at::hardtanh_(x, 0, 6) : at::hardtanh(x, 0, 6);
  }
  return x;
}

std::vector<int> last_readers(const Graph& graph) {
  std::vector<int> last(graph.nodes.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (int input : graph.nodes[n].inputs) last[input] = static_cast<int>(n);
  return last;
}

at::Tensor walk(const Graph& graph, const Weights& weights, const at::Tensor& x, const WalkMode& mode,
                const WalkHooks& hooks) {
  const std::vector<int> last = last_readers(graph);
  std::vector<at::Tensor> values(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const int index = static_cast<int>(n);
    at::Tensor y = n == 0 ? x : Step{node, index, weights, values, mode, hooks}.run();
    values[n] = hooks.output ? hooks.output(index, std::move(y)) : std::move(y);
    for (int input : node.inputs)
      if (last[input] == index) values[input].reset();
  }
  return values.back().flatten(1);
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
  walk(graph, weights, x, mode, {.weight = nullptr, .output = look});
  return found;
}

}  // namespace octet
