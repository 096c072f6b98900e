// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/layer_costs.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "src/train/model/numerics.h"

namespace octet {
namespace {

/// What one node's output loses, by channel, over batches.
struct ChannelErrors {
  at::Tensor sum, squares, noise;  // double [C]
  double count = 0;

  void add(const at::Tensor& wanted, const at::Tensor& got) {
    const auto by_channel = [](const at::Tensor& x) {
      return x.reshape({x.size(0), x.size(1), -1}).sum(at::IntArrayRef{0, 2}, false, at::kDouble);
    };
    const auto accumulate = [](at::Tensor& to, const at::Tensor& x) { to = to.defined() ? to + x : x; };
    accumulate(sum, by_channel(wanted));
    accumulate(squares, by_channel(wanted.square()));
    accumulate(noise, by_channel((wanted - got).square()));
    count += static_cast<double>(wanted.numel()) / static_cast<double>(wanted.size(1));
  }
  double sqnr_db() const { return signal_to_noise_db(squares.sum().item<double>(), noise.sum().item<double>()); }
  /// Returns noise / (noise + signal around the channel's mean), mean over channels: one wide channel may leave the
  /// others no codes, and hardly shows in the sums.
  double lost() const {
    const at::Tensor signal = (squares - sum.square() / count).clamp_min(0);
    return (noise / (noise + signal).clamp_min(std::numeric_limits<double>::min())).mean().item<double>();
  }
};

}  // namespace

std::vector<LayerCost> layer_costs(QuantizedModel& model, const std::vector<at::Tensor>& x, int most,
                                   const std::function<void(int layer)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  std::vector<ChannelErrors> sums(nodes.size());
  for (const at::Tensor& batch : x) {
    std::vector<at::Tensor> wanted(nodes.size());
    const std::vector<bool> none(nodes.size(), false), all(nodes.size(), true);
    model.forward_partly(batch, none, [&](int n, const at::Tensor& y) { wanted[n] = y.clone(); });
    model.forward_partly(batch, all, [&](int n, const at::Tensor& y) {
      sums[n].add(wanted[n], y);
      wanted[n] = at::Tensor();
    });
  }
  const OutputErrors errors(model, x, float_outputs(model, x));
  std::vector<double> lost;
  for (const ChannelErrors& node : sums) lost.push_back(node.lost());
  std::vector<LayerCost> costs;
  std::vector<std::pair<double, size_t>> added;  // what the inputs had lost already, less what the node's output lost
  std::vector<int> node_of;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    if (!has_weight(nodes[n].op) && !model.prepared().has_edge(n)) continue;
    double before = 0;
    for (const int input : nodes[n].inputs) before = std::max(before, lost[input]);
    added.emplace_back(before - lost[n], costs.size());
    node_of.push_back(n);
    costs.push_back({nodes[n].name, std::string(op_name(nodes[n].op)), sums[n].sqnr_db(), {}});
  }
  std::sort(added.begin(), added.end());
  for (int i = 0; i < std::min(most, static_cast<int>(added.size())); ++i) {
    done(i);
    std::vector<bool> alone(nodes.size(), false);
    alone[node_of[added[i].second]] = true;
    costs[added[i].second].alone_lost = mean_lost(errors.measure(alone));
  }
  return costs;
}

}  // namespace octet
