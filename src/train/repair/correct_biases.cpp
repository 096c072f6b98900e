// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/correct_biases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

constexpr int64_t kEnough = 128, kMost = 1024;  // values of a channel: fewer say little, more change nothing

/// Returns some values of each channel, evenly spaced over images and pixels, with its bias: float [K, values] on the
/// host.
at::Tensor some_values(const Unfinished& y) {
  const at::Tensor all = y.value.permute({1, 0, 2, 3}).flatten(1);
  const int64_t step = (all.size(1) + kMost - 1) / kMost | 1;  // odd: not the same columns of each image
  const at::Tensor some = all.slice(1, 0, all.size(1), step);
  return to_host(y.bias.defined() ? some + y.bias.view({-1, 1}) : some.clone()).contiguous();
}

/// Returns the trimmed mean of each row's error, float [K].
at::Tensor shift(const at::Tensor& wanted, const at::Tensor& got) {
  const at::Tensor errors = wanted - got;
  at::Tensor result = at::empty({errors.size(0)});
  float *rows = errors.mutable_data_ptr<float>(), *out = result.mutable_data_ptr<float>();
  const int64_t values = errors.size(1);
  share_among_threads(errors.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      out[k] = static_cast<float>(trimmed_mean(rows + k * values, static_cast<size_t>(values)));
  });
  return result;
}

/// Moves the running mean of a layer's BatchNorm so that its channels gain `error`. Where the gain is 0 none can.
void move_running_mean(const Weights& weights, const Node& layer, const at::Tensor& error) {
  const auto of = [&](const char* name) { return weights.at(layer.batch_norm + name).detach(); };
  const at::Tensor gain = of(".weight"), deviation = (of(".running_var") + layer.epsilon).sqrt();
  const at::Tensor deviations = at::where(gain.eq(0), at::zeros_like(error), error / gain).clamp(-1, 1);
  of(".running_mean").sub_(deviations * deviation);
}

}  // namespace

double trimmed_mean(float* values, size_t n) {
  const size_t cut = n / 10;
  float *first = values + cut, *last = values + n - cut;
  std::nth_element(values, first, values + n);
  std::nth_element(first, last, values + n);
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

void correct_biases(QuantizedModel& model, const Weights& floats, const at::Tensor& x, BatchNormTakes takes) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Graph& graph = model.prepared().graph;
  std::vector<at::Tensor> wanted(graph.nodes.size());
  const auto corrected = [&](int n, const Unfinished& y) {
    const Node& node = graph.nodes[n];
    return has_weight(node.op) && !bias_name(node).empty() && y.value.numel() / y.value.size(1) >= kEnough;
  };
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    if (corrected(n, y)) wanted[n] = some_values(y);
    return finished(y, graph.nodes[n].activation);
  };
  walk(graph, floats, x, {}, hooks);
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!corrected(n, y)) return;
    const at::Tensor error = shift(std::exchange(wanted[n], at::Tensor()), some_values(y)).to(y.value.device());
    if (!error.isfinite().all().item<bool>())
      throw promise_error("'" + graph.nodes[n].name + "': bias correction met NaN or infinity");
    y.bias = y.bias.defined() ? y.bias + error : error;  // which may be the parameter itself
    if (takes == BatchNormTakes::running_mean && !graph.nodes[n].batch_norm.empty())
      move_running_mean(model.weights(), graph.nodes[n], error);
    else
      model.weights().at(bias_name(graph.nodes[n])).detach().add_(error);
  });
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
