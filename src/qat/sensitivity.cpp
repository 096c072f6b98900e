#include "src/qat/sensitivity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/model/device.h"

namespace octet {
namespace {

double decibels(double signal, double noise) {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

/// Logits of a picture: [classes, pixels], flattened; one pixel for a classifier.
LogitsLoss loss_of(const at::Tensor& wanted, const at::Tensor& logits, int classes) {
  const at::Tensor x = wanted.to(at::kDouble);
  const double signal = x.square().sum().item<double>(), noise = (x - logits).square().sum().item<double>();
  const auto choice = [&](const at::Tensor& y) { return y.view({y.size(0), classes, -1}).argmax(1); };
  return {decibels(signal, noise), choice(wanted).eq(choice(logits)).to(at::kDouble).mean().item<double>()};
}

/// Sums over pictures and pixels of each node's channels: of squares, of squared differences. Double [C].
struct ChannelSums {
  at::Tensor signal, noise;
  void add(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor s = x.square().sum({0, 2, 3}, false, at::kDouble),
                     n = (x - y).square().sum({0, 2, 3}, false, at::kDouble);
    signal = signal.defined() ? signal + s : s;
    noise = noise.defined() ? noise + n : n;
  }
};

void fill(LayerSensitivity& layer, const ChannelSums& sums, size_t worst_channels) {
  const at::Tensor signal = to_host(sums.signal), noise = to_host(sums.noise);
  const double *s = signal.const_data_ptr<double>(), *n = noise.const_data_ptr<double>();
  double all_signal = 0, all_noise = 0;
  for (int64_t c = 0; c < signal.numel(); ++c) {
    all_signal += s[c];
    all_noise += n[c];
    if (n[c] > 0) layer.worst.push_back({static_cast<int>(c), decibels(s[c], n[c])});
  }
  layer.sqnr_db = decibels(all_signal, all_noise);
  std::stable_sort(layer.worst.begin(), layer.worst.end(),
                   [](const ChannelLoss& a, const ChannelLoss& b) { return a.sqnr_db < b.sqnr_db; });
  layer.worst.resize(std::min(layer.worst.size(), worst_channels));
}

/// The network over the same pictures, more or less of it quantized.
class Partly {
 public:
  Partly(QuantizedModel& model, const std::vector<at::Tensor>& x)
      : model_(model), x_(x), nodes_(model.prepared().graph.nodes.size()) {
    wanted_ = logits(none());
  }
  std::vector<bool> all() const { return std::vector<bool>(nodes_, true); }
  std::vector<bool> none() const { return std::vector<bool>(nodes_, false); }
  LogitsLoss loss(const std::vector<bool>& quantized) const {
    const Graph& graph = model_.prepared().graph;
    return loss_of(wanted_, logits(quantized), graph.nodes[graph.outputs.front()].shape.c);
  }
  LogitsLoss alone(const std::vector<int>& nodes) const {
    std::vector<bool> some = none();
    for (const int node : nodes) some[node] = true;
    return loss(some);
  }
  LogitsLoss all_but(int node) const {
    std::vector<bool> others = all();
    others[node] = false;
    return loss(others);
  }

 private:
  at::Tensor logits(const std::vector<bool>& quantized) const {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : x_) parts.push_back(model_.forward_partly(part, quantized));
    return at::cat(parts);
  }

  QuantizedModel& model_;
  const std::vector<at::Tensor>& x_;
  size_t nodes_;
  at::Tensor wanted_;
};

}  // namespace

Sensitivity sensitivity(QuantizedModel& model, const std::vector<at::Tensor>& x, size_t worst_channels,
                        const std::function<void(size_t done, size_t all)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Prepared& prepared = model.prepared();
  const std::vector<Node>& nodes = prepared.graph.nodes;
  const Partly partly(model, x);
  std::vector<ChannelSums> sums(nodes.size());
  for (const at::Tensor& part : x) {
    std::vector<at::Tensor> outputs(nodes.size());
    model.forward_partly(part, partly.none(), [&](int n, const at::Tensor& y) { outputs[n] = y.clone(); });
    model.forward_partly(part, partly.all(), [&](int n, const at::Tensor& y) { sums[n].add(outputs[n], y); });
  }
  Sensitivity result{.all = partly.loss(partly.all()), .layers = {}};

  std::vector<int> measured;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n)
    if (has_weight(nodes[n].op) || prepared.has_edge(n)) measured.push_back(n);
  for (const int n : measured) {
    LayerSensitivity layer{.name = nodes[n].name, .op = std::string(op_name(nodes[n].op))};
    layer.weight_bits = prepared.bits.weight_bits[n];
    layer.activation_bits = prepared.bits.activation_bits[n];
    layer.alone = partly.alone({n});
    layer.all_but = partly.all_but(n);
    fill(layer, sums[n], worst_channels);
    result.layers.push_back(std::move(layer));
    done(result.layers.size(), measured.size());
  }
  return result;
}

std::vector<LogitsLoss> each_alone(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                   const std::vector<std::vector<int>>& groups, const std::function<void()>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Partly partly(model, x);
  std::vector<LogitsLoss> losses;
  for (const std::vector<int>& nodes : groups) {
    losses.push_back(partly.alone(nodes));
    done();
  }
  return losses;
}

LogitsLoss all_quantized(QuantizedModel& model, const std::vector<at::Tensor>& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Partly partly(model, x);
  return partly.loss(partly.all());
}

}  // namespace octet
