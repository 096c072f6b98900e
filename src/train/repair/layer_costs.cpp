// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/layer_costs.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "src/train/model/numerics.h"
#include "src/train/repair/deployed_network.h"

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

/// Returns the images in batches of which all nodes' values fit into 128 MiB, or of one image.
std::vector<at::Tensor> small_batches(const std::vector<at::Tensor>& x, const std::vector<Node>& nodes) {
  constexpr int64_t kMost = 128 << 20;
  int64_t bytes = 0;  // of one image's values
  for (const Node& node : nodes) bytes += 4 * node.shape.elements();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& batch : x)
    for (const at::Tensor& part : batch.split(std::max<int64_t>(1, kMost / bytes))) parts.push_back(part);
  return parts;
}

}  // namespace

NetworkCosts network_costs(QuantizedModel& model, QuantizedModel* original, const std::vector<at::Tensor>& x, int most,
                           const std::function<void(int layer)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Graph& graph = model.prepared().graph;
  const std::vector<Node>& nodes = graph.nodes;
  const std::vector<bool> none(nodes.size(), false);
  std::vector<ChannelErrors> sums(nodes.size());
  std::vector<std::vector<at::Tensor>> floats, deployed;  // outputs, by batch
  const std::vector<at::Tensor> parts = small_batches(x, nodes);
  DeployedNetwork network(model, largest_batch(parts));
  for (const at::Tensor& batch : parts) {
    std::vector<at::Tensor> wanted(nodes.size()), got(nodes.size());
    model.forward_partly(batch, none, [&](int n, const at::Tensor& y) { wanted[n] = y.clone(); });
    const auto outputs = [&](const std::vector<at::Tensor>& of) {
      std::vector<at::Tensor> result;
      for (const int output : graph.outputs) result.push_back(of[output]);
      return result;
    };
    floats.push_back(outputs(wanted));
    network.run(batch, [&](int n, const at::Tensor& y) {
      sums[n].add(wanted[n], y);
      wanted[n] = at::Tensor();
      if (std::count(graph.outputs.begin(), graph.outputs.end(), n) > 0) got[n] = y.clone();
    });
    deployed.push_back(outputs(got));
  }
  const FloatOutputs own(std::move(floats));
  NetworkCosts costs;
  const auto got = [&](size_t batch) { return deployed[batch]; };
  costs.outputs = output_errors(graph, original ? float_outputs(*original, parts) : own, got);

  std::vector<double> lost;
  for (const ChannelErrors& node : sums) lost.push_back(node.lost());
  std::vector<std::pair<double, size_t>> added;  // what the inputs had lost already, less what the node's output lost
  std::vector<int> node_of;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    if (!has_weight(nodes[n].op) && !model.prepared().has_edge(n)) continue;
    double before = 0;
    for (const int input : nodes[n].inputs) before = std::max(before, lost[input]);
    added.emplace_back(before - lost[n], costs.layers.size());
    node_of.push_back(n);
    costs.layers.push_back({nodes[n].name, std::string(op_name(nodes[n].op)), sums[n].sqnr_db(), {}});
  }
  std::sort(added.begin(), added.end());
  std::vector<at::Tensor> first;  // the parts of the first batch
  for (int64_t images = 0; images < x.front().size(0); images += first.back().size(0))
    first.push_back(parts[first.size()]);
  FloatOutputs of_first = own;
  of_first.y.resize(first.size());
  const OutputErrors errors(model, first, std::move(of_first));
  for (int i = 0; i < std::min(most, static_cast<int>(added.size())); ++i) {
    done(i);
    std::vector<bool> alone = none;
    alone[node_of[added[i].second]] = true;
    costs.layers[added[i].second].alone_lost = mean_lost(errors.measure(alone));
  }
  return costs;
}

}  // namespace octet
