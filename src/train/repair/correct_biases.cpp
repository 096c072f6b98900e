// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/correct_biases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/train/model/device.h"

namespace octet {
namespace {

/// Returns the mean of each channel with its bias, double [K].
at::Tensor mean_of(const Unfinished& y) {
  const at::Tensor mean = y.value.mean({0, 2, 3}, false, at::kDouble);
  return y.bias.defined() ? mean + y.bias : mean;
}

}  // namespace

void correct_biases(QuantizedModel& model, const std::vector<ChannelMoments>& wanted, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  require_biases(model.prepared().graph);
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(nodes[n].op)) return;
    const at::Tensor target = at::tensor(wanted[n].mean).to(y.value.device());
    const at::Tensor error = (target - mean_of(y)).to(at::kFloat);
    if (!error.isfinite().all().item<bool>())
      throw promise_error("'" + nodes[n].name + "': bias correction met NaN or infinity");
    y.bias = y.bias.defined() ? y.bias + error : error;  // which may be the parameter itself
    const at::Tensor parameter = model.weights().at(bias_name(nodes[n]));
    parameter.add_(error);
  });
}

std::vector<ChannelMoments> quantized_means(QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  std::vector<ChannelMoments> result(nodes.size());
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(nodes[n].op)) return;
    const at::Tensor mean = to_host(mean_of(y));
    result[n].mean.assign(mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + mean.numel());
  });
  return result;
}

MomentsObserver::MomentsObserver(const Graph& fused, const Weights& weights)
    : graph_(fused), weights_(weights), sums_(fused.nodes.size()) {}

void MomentsObserver::see(const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    const Node& node = graph_.nodes[n];
    if (has_weight(node.op)) {
      Sums& sums = sums_[n];
      const at::Tensor values = y.value.sum({0, 2, 3}, false, at::kDouble);
      const at::Tensor squares = y.value.square().sum({0, 2, 3}, false, at::kDouble);
      sums.values = sums.values.defined() ? sums.values + values : values;
      sums.squares = sums.squares.defined() ? sums.squares + squares : squares;
      sums.count += static_cast<double>(y.value.numel() / y.value.size(1));
      sums.bias = y.bias;
    }
    return finished(y, node.activation);
  };
  walk(graph_, weights_, x, {}, hooks);
}

std::vector<ChannelMoments> MomentsObserver::moments() const {
  std::vector<ChannelMoments> result(sums_.size());
  for (size_t n = 0; n < sums_.size(); ++n) {
    if (!sums_[n].values.defined()) continue;
    const at::Tensor values = to_host(sums_[n].values), squares = to_host(sums_[n].squares);
    const at::Tensor bias = sums_[n].bias.defined() ? to_host(sums_[n].bias.detach()) : at::Tensor();
    for (int64_t k = 0; k < values.numel(); ++k) {
      const double mean = values.const_data_ptr<double>()[k] / sums_[n].count;
      const double variance = squares.const_data_ptr<double>()[k] / sums_[n].count - mean * mean;
      result[n].mean.push_back(mean + (bias.defined() ? bias.const_data_ptr<float>()[k] : 0.0));
      result[n].deviation.push_back(std::sqrt(std::max(0.0, variance)));
    }
  }
  return result;
}

}  // namespace octet
