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

}  // namespace

Sensitivity sensitivity(QuantizedModel& model, const std::vector<at::Tensor>& x, size_t worst_channels,
                        const std::function<void(size_t done, size_t all)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Prepared& prepared = model.prepared();
  const std::vector<Node>& nodes = prepared.graph.nodes;
  const auto logits = [&](const std::vector<bool>& quantized) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : x) parts.push_back(model.forward_partly(part, quantized));
    return at::cat(parts);
  };
  const std::vector<bool> all(nodes.size(), true), none(nodes.size(), false);
  std::vector<ChannelSums> sums(nodes.size());
  std::vector<at::Tensor> floats, simulated;
  for (const at::Tensor& part : x) {
    std::vector<at::Tensor> outputs(nodes.size());
    floats.push_back(model.forward_partly(part, none, [&](int n, const at::Tensor& y) { outputs[n] = y.clone(); }));
    simulated.push_back(
        model.forward_partly(part, all, [&](int n, const at::Tensor& y) { sums[n].add(outputs[n], y); }));
  }
  const at::Tensor wanted = at::cat(floats);
  const int classes = nodes[prepared.graph.outputs.front()].shape.c;
  Sensitivity result{.all = loss_of(wanted, at::cat(simulated), classes), .layers = {}};

  std::vector<int> measured;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n)
    if (has_weight(nodes[n].op) || prepared.has_edge(n)) measured.push_back(n);
  for (const int n : measured) {
    LayerSensitivity layer{.name = nodes[n].name, .op = std::string(op_name(nodes[n].op))};
    layer.weight_bits = prepared.bits.weight_bits[n];
    layer.activation_bits = prepared.bits.activation_bits[n];
    std::vector<bool> alone = none, all_but = all;
    alone[n] = true;
    all_but[n] = false;
    layer.alone = loss_of(wanted, logits(alone), classes);
    layer.all_but = loss_of(wanted, logits(all_but), classes);
    fill(layer, sums[n], worst_channels);
    result.layers.push_back(std::move(layer));
    done(result.layers.size(), measured.size());
  }
  return result;
}

}  // namespace octet
