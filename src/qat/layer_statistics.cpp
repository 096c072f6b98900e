#include "src/qat/layer_statistics.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "src/model/device.h"
#include "src/qat/fake_quantize.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"

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

/// 10 log10(E[x^2] / E[(x - y)^2]); infinite where x is y, NaN where x is not finite.
double sqnr_db(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor wide = x.to(at::kDouble);
  const double signal = wide.square().sum().item().toDouble();
  const double noise = wide.sub(y).square().sum().item().toDouble();
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

std::string describe(const QParams& q) {
  return fmt::format("{} scale {:.4g} zero {}", code_type(q), q.scale, q.zero_point);
}

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

}  // namespace octet
