// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/output_error.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <numeric>

#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

constexpr int64_t kMeasured = 8, kAlone = 4;  // images for layers: enough to tell those that cost much

/// What one node's output loses, by channel, over batches.
struct ChannelErrors {
  std::vector<double> sum, squares, noise;  // by channel
  double count = 0;

  void add(const at::Tensor& wanted, const at::Tensor& got) {
    const auto channels = static_cast<size_t>(wanted.size(1));
    const size_t pixels = static_cast<size_t>(wanted.numel()) / channels;
    for (std::vector<double>* sums : {&sum, &squares, &noise}) sums->resize(channels);
    const at::Tensor w = channels_last(wanted), g = channels_last(got);
    // Few threads' worth of work for each of many nodes: channels are divided.
    share_among_threads(static_cast<int64_t>(channels), kGrain / static_cast<int64_t>(pixels) + 1,
                        [&](int64_t begin, int64_t end) {
                          add(w.const_data_ptr<float>(), g.const_data_ptr<float>(), pixels, channels,
                              static_cast<size_t>(begin), static_cast<size_t>(end));
                        });
    count += static_cast<double>(pixels);
  }
  double sqnr_db() const {
    return signal_to_noise_db(std::accumulate(squares.begin(), squares.end(), 0.0),
                              std::accumulate(noise.begin(), noise.end(), 0.0));
  }
  /// Returns noise / (noise + signal around the channel's mean), mean over channels: one wide channel may leave the
  /// others no codes, and hardly shows in the sums.
  double lost() const {
    double total = 0;
    for (size_t c = 0; c < sum.size(); ++c) {
      const double signal = std::max(0.0, squares[c] - sum[c] * sum[c] / count);
      total += noise[c] / std::max(noise[c] + signal, std::numeric_limits<double>::min());
    }
    return total / static_cast<double>(sum.size());
  }

 private:
  static constexpr int64_t kGrain = 1 << 16;  // a thread takes at least so many values

  /// Returns the values [N, H, W, C] on the host.
  static at::Tensor channels_last(const at::Tensor& x) {
    return to_host(x.reshape({x.size(0), x.size(1), -1}).permute({0, 2, 1}));
  }
  void add(const float* wanted, const float* got, size_t pixels, size_t channels, size_t begin, size_t end) {
    constexpr size_t kRun = 64;  // pixels whose sums are exact enough in float
    std::vector<float> s(end - begin), q(end - begin), n(end - begin);
    for (size_t first = 0; first < pixels; first += kRun) {
      for (std::vector<float>* sums : {&s, &q, &n}) std::fill(sums->begin(), sums->end(), 0.0f);
      for (size_t p = first; p < std::min(pixels, first + kRun); ++p) {
        const float *w = wanted + p * channels + begin, *g = got + p * channels + begin;
        for (size_t c = 0; c < end - begin; ++c) {
          const float lost = w[c] - g[c];
          s[c] += w[c];
          q[c] += w[c] * w[c];
          n[c] += lost * lost;
        }
      }
      for (size_t c = begin; c < end; ++c) {
        sum[c] += s[c - begin];
        squares[c] += q[c - begin];
        noise[c] += n[c - begin];
      }
    }
  }
};

/// Returns a batch in parts of which all nodes' values fit into 128 MiB, or of one image.
std::vector<at::Tensor> small_parts(const at::Tensor& batch, const std::vector<Node>& nodes) {
  constexpr int64_t kMost = 128 << 20;
  int64_t bytes = 0;  // of one image's values
  for (const Node& node : nodes) bytes += 4 * node.shape.elements();
  return batch.split(std::max<int64_t>(1, kMost / bytes));
}

}  // namespace

NetworkCosts network_costs(QuantizedModel& model, QuantizedModel& floats, QuantizedModel* original,
                           const std::vector<at::Tensor>& x, int most, const std::function<void(int layer)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Graph& graph = model.prepared().graph;
  const std::vector<Node>& nodes = graph.nodes;
  const std::vector<bool> none(nodes.size(), false);
  std::vector<ChannelErrors> sums(nodes.size());
  std::vector<std::vector<at::Tensor>> float_y, deployed;  // outputs, by batch
  std::vector<at::Tensor> parts;                           // in which layers are measured
  size_t next = 0;
  for (int64_t images = 0; images < kMeasured && next < x.size(); images += x[next++].size(0))
    for (const at::Tensor& part : small_parts(x[next], nodes)) parts.push_back(part);
  std::vector<at::Tensor> batches = parts;
  batches.insert(batches.end(), x.begin() + static_cast<std::ptrdiff_t>(next), x.end());
  DeployedNetwork network(model, largest_batch(batches));
  for (const at::Tensor& batch : parts) {
    std::vector<at::Tensor> wanted(nodes.size()), got(nodes.size());
    floats.forward_partly(batch, none, [&](int n, const at::Tensor& y) { wanted[n] = y.clone(); });
    const auto outputs = [&](const std::vector<at::Tensor>& of) {
      std::vector<at::Tensor> result;
      for (const int output : graph.outputs) result.push_back(of[output]);
      return result;
    };
    float_y.push_back(outputs(wanted));
    network.run(batch, [&](int n, const at::Tensor& y) {
      sums[n].add(wanted[n], y);
      wanted[n] = at::Tensor();
      if (std::count(graph.outputs.begin(), graph.outputs.end(), n) > 0) got[n] = y.clone();
    });
    deployed.push_back(outputs(got));
  }
  for (size_t b = parts.size(); b < batches.size(); ++b) {
    float_y.push_back(partly_quantized_outputs(floats, batches[b], none));
    deployed.push_back(network.outputs(batches[b]));
  }
  const FloatOutputs own(std::move(float_y));
  NetworkCosts costs;
  const auto got = [&](size_t batch) { return deployed[batch]; };
  const FloatOutputs compared = original ? float_outputs(*original, batches) : own;
  costs.outputs = output_errors(graph, compared, got);
  for (size_t o = 0; o < costs.outputs.size(); ++o) costs.outputs[o].silent = silent_images(compared, o);

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
  std::vector<at::Tensor> first;
  for (int64_t images = 0; images < kAlone && first.size() < parts.size(); images += first.back().size(0))
    first.push_back(parts[first.size()]);
  std::map<int, LayerCost*> worst;  // by node, so that what is float before a node is computed once for all behind it
  for (int i = 0; i < std::min(most, static_cast<int>(added.size())); ++i)
    worst.emplace(node_of[added[i].second], &costs.layers[added[i].second]);
  FloatOutputs of_first = own;
  of_first.y.resize(first.size());
  const std::vector<int> cuts = cut_points(graph);
  int after = 0, measured = 0;
  for (const auto& [node, cost] : worst) {
    done(measured++);
    const auto cut = std::lower_bound(cuts.begin(), cuts.end(), node);
    if (const int last = cut == cuts.begin() ? 0 : *std::prev(cut); last > after) {
      for (at::Tensor& x : first) x = walk_part(graph, floats.used_weights(), {.first = after, .last = last}, x, {});
      after = last;
    }
    std::vector<bool> alone = none;
    alone[node] = true;
    cost->alone_lost = mean_lost(output_errors(
        graph, of_first, [&](size_t b) { return partly_quantized_outputs(floats, first[b], alone, after); }));
  }
  return costs;
}

}  // namespace octet
