#include "src/qat/channel_moments.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "src/model/device.h"

namespace octet {

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
    return activate(add_up(y), node.activation, y.owned);
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
