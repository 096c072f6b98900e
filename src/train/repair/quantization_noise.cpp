// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/quantization_noise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/repair/output_error.h"

namespace octet {
namespace {

constexpr int kBins = 64;

Histogram histogram(const at::Tensor& x) {
  const at::Tensor flat = to_host(x.detach());
  const float* data = flat.const_data_ptr<float>();
  const int64_t count = flat.numel();
  Histogram result{0, 0, std::vector<double>(kBins)};
  std::vector<float> values;
  std::copy_if(data, data + count, std::back_inserter(values), [](float value) { return std::isfinite(value); });
  result.not_finite = static_cast<long>(count - static_cast<int64_t>(values.size()));
  if (values.empty()) return result;
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  result.lo = *lo;
  result.hi = *hi;
  const double width = (static_cast<double>(*hi) - *lo) / kBins;
  for (const float value : values) {
    const int bin = width > 0 ? static_cast<int>((value - static_cast<double>(*lo)) / width) : 0;
    ++result.counts[std::min(bin, kBins - 1)];
  }
  return result;
}

/// Returns 10 log10(E[x^2] / E[(x - y)^2]): infinite where x is y, NaN where x is not finite.
double sqnr_db(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor wide = x.to(at::kDouble);
  return signal_to_noise_db(wide.square().sum().item<double>(), (wide - y).square().sum().item<double>());
}

std::string describe(const QParams& q) {
  return fmt::format("{} scale {:.4g} zero {}", code_type(q), q.scale, q.zero_point);
}

/// Compares logits of images, each [classes, pixels] flattened; a classifier has one pixel.
LogitsLoss loss_of(const at::Tensor& wanted, const at::Tensor& logits, int classes) {
  const auto choice = [&](const at::Tensor& y) { return y.view({y.size(0), classes, -1}).argmax(1); };
  return {sqnr_db(wanted, logits), choice(wanted).eq(choice(logits)).to(at::kDouble).mean().item<double>()};
}

/// Sums over images and pixels by channel, double [C]: of x squared, and of the squared difference.
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
    if (n[c] > 0) layer.worst.push_back({static_cast<int>(c), signal_to_noise_db(s[c], n[c])});
  }
  layer.sqnr_db = signal_to_noise_db(all_signal, all_noise);
  std::stable_sort(layer.worst.begin(), layer.worst.end(),
                   [](const ChannelLoss& a, const ChannelLoss& b) { return a.sqnr_db < b.sqnr_db; });
  layer.worst.resize(std::min(layer.worst.size(), worst_channels));
}

/// Runs the network over the same images with more or less of it quantized, and compares the logits with float.
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
    const at::Tensor all = logits(quantized);
    if (graph.outputs.size() == 1) return loss_of(wanted_, all, graph.nodes[graph.outputs.front()].shape.c);
    double noise = 0, agreement = 0;
    int64_t first = 0;
    long choosing = 0;
    for (const int output : graph.outputs) {
      const Shape& shape = graph.nodes[output].shape;
      const auto own = [&](const at::Tensor& y) { return y.narrow(1, first, shape.elements()).contiguous(); };
      const LogitsLoss loss = loss_of(own(wanted_), own(all), shape.c);
      noise += std::pow(10, -loss.sqnr_db / 10) / static_cast<double>(graph.outputs.size());
      if (shape.c > 1) agreement += loss.agreement, ++choosing;
      first += shape.elements();
    }
    return {-10 * std::log10(noise), choosing > 0 ? agreement / static_cast<double>(choosing) : 1};
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

std::vector<LayerStatistics> layer_statistics(const QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full_precision;
  const Prepared& prepared = model.prepared();
  const std::vector<QParams> edges = model.edges();
  const FloatParams scales = model.weight_scales();
  std::vector<LayerStatistics> layers(prepared.graph.nodes.size());
  const Weights weights = model.used_weights();
  for (size_t n = 0; n < layers.size(); ++n) {
    const Node& node = prepared.graph.nodes[n];
    layers[n].name = node.name;
    layers[n].op = op_name(node.op);
    if (!prepared.float_output(static_cast<int>(n))) layers[n].qparams = describe(edges[n]);
    if (!has_weight(node.op)) continue;
    const WeightCodes codes = prepared.weight_codes(static_cast<int>(n));
    layers[n].weight_codes = fmt::format("{}..{}", codes.lowest, codes.highest);
    const at::Tensor weight = to_host(weights.at(node.name + ".weight").detach());
    layers[n].weights = histogram(weight);
    layers[n].weight_sqnr_db = sqnr_db(weight, fake_quantize_weight(weight, scales.at(node.name), codes));
  }
  std::vector<at::Tensor> simulated(layers.size());
  QuantizedModel simulation = model;  // a handle on the same model
  simulation.forward(x, {}, [&](int n, const at::Tensor& y) { simulated[n] = y.clone(); });
  WalkHooks hooks;
  hooks.output = [&](int n, at::Tensor y) {
    layers[n].activations = histogram(y);
    layers[n].sqnr_db = sqnr_db(y, simulated[n]);
    return y;
  };
  walk(prepared.graph, weights, x, {}, hooks);
  return layers;
}

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
