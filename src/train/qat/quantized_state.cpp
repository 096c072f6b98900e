// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/quantized_model.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/train/model/device.h"

namespace octet {

FloatParams float_params(const Weights& weights) {
  FloatParams params;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor plain = to_host(tensor.detach());
    const float* data = plain.const_data_ptr<float>();
    params.emplace(name, std::vector<float>(data, data + plain.numel()));
  }
  return params;
}

void set_float_params(const Weights& weights, FloatParams params) {
  const c10::NoGradGuard no_grad;
  for (auto& [name, values] : params) {
    at::Tensor tensor = weights.at(name);
    tensor.copy_(at::from_blob(values.data(), tensor.sizes(), at::kFloat));
  }
}

namespace {

/// Returns state[name]. Throws Error(data) if it is missing or of another shape or type.
at::Tensor find(const std::map<std::string, at::Tensor>& state, const std::string& name, at::IntArrayRef shape,
                at::ScalarType type) {
  const auto it = state.find(name);
  if (it == state.end()) throw data_error("QAT state: tensor '" + name + "' is missing");
  if (it->second.sizes() != shape || it->second.scalar_type() != type)
    throw data_error("QAT state: tensor '" + name + "' is of another network or observer");
  return it->second.contiguous();
}

/// Returns whether the state is of a version that kept ranges as floats and did not count batches: it continues as a
/// state of many batches.
bool is_older(const std::map<std::string, at::Tensor>& state) {
  const auto it = state.find("observer.range");
  return it != state.end() && it->second.scalar_type() == at::kFloat;
}

constexpr int kCodes = 4;  // numbers a node in "codes"

std::vector<int32_t> codes_of(const Prepared& prepared) {
  std::vector<int32_t> codes;
  for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n) {
    const bool weighted = has_weight(prepared.graph.nodes[n].op);
    const WeightCodes weight = weighted ? prepared.weight_codes(n) : WeightCodes{0, 0};
    codes.insert(codes.end(),
                 {prepared.range[n].quant_min, prepared.range[n].quant_max, weight.lowest, weight.highest});
  }
  return codes;
}

std::string describe(const int32_t* codes) {
  const std::string weights =
      codes[2] == 0 ? "" : ", weights in [" + std::to_string(codes[2]) + ", " + std::to_string(codes[3]) + "]";
  return "codes in [" + std::to_string(codes[0]) + ", " + std::to_string(codes[1]) + "]" + weights;
}

}  // namespace

void EdgeState::set(int root, const QParams& q, const Prepared& prepared) {
  for (size_t n = 0; n < qparams.size(); ++n)
    if (prepared.root[n] == root) qparams[n] = q;
}

at::Tensor learned_weight_scales(const std::map<std::string, at::Tensor>& state, const at::Tensor& learned) {
  const bool stored = state.contains("weights.scale");
  if (stored != learned.defined())
    throw data_error(stored ? "QAT state: its scales of weights were learned; set quant.weight_calibrator: lsq, or "
                              "train again"
                            : "QAT state: it has no scales of weights; set quant.weight_calibrator as it was, or train "
                              "again");
  if (!stored) return {};
  const at::Tensor scales = find(state, "weights.scale", learned.sizes(), at::kFloat);
  if (!scales.gt(0).logical_and(scales.isfinite()).all().item<bool>())
    throw data_error("QAT state: tensor 'weights.scale' holds impossible scales");
  return scales;
}

at::Tensor learned_offsets(const std::map<std::string, at::Tensor>& state, const at::Tensor& learned) {
  if (state.contains("edges.alpha"))
    throw data_error("QAT state: it has clipping levels of an older octet's quant.scales: pact; train again");
  const bool stored = state.contains("edges.offset");
  if (stored != learned.defined())
    throw data_error("QAT state: it has " + std::string(stored ? "" : "no ") +
                     "tensor 'edges.offset' of ranges that learn; set quant.scales as it was, or train again");
  if (!stored) return {};
  const at::Tensor values = find(state, "edges.offset", learned.sizes(), at::kFloat);
  if (!values.le(0).logical_and(values.isfinite()).all().item<bool>())  // code 0 is 0 or below
    throw data_error("QAT state: tensor 'edges.offset' holds impossible values");
  return values;
}

void save_codes(const Prepared& prepared, std::map<std::string, at::Tensor>& state) {
  const std::vector<int32_t> codes = codes_of(prepared);
  at::Tensor rows = at::zeros({static_cast<int64_t>(prepared.graph.nodes.size()), kCodes}, at::kInt);
  std::copy(codes.begin(), codes.end(), rows.mutable_data_ptr<int32_t>());
  state.emplace("codes", rows);
}

void require_codes(const std::map<std::string, at::Tensor>& state, const Prepared& prepared) {
  const std::vector<Node>& nodes = prepared.graph.nodes;
  const std::vector<int32_t> expected = codes_of(prepared);
  std::vector<int32_t> found;
  std::string cure = "set section quant of the recipe as it was, or train again";
  if (prepared.spec.residual_bits > 0)
    cure +=
        " (an octet before 27 November 2026 gave quant.residual_bits to edges of adds alone, not of functions, "
        "products and concats: such a run must be trained again)";
  if (state.contains("codes")) {
    const at::Tensor rows = find(state, "codes", {static_cast<int64_t>(nodes.size()), kCodes}, at::kInt);
    found.assign(rows.const_data_ptr<int32_t>(), rows.const_data_ptr<int32_t>() + rows.numel());
  } else {
    QuantSpec old = prepared.spec;
    old.weight_range = WeightRange::symmetric;
    old.residual_bits = 0;
    old.layers = {{"*", old.weight_bits, old.activation_bits}};
    const bool inserted = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.op == Op::requantize; });
    if (!inserted) found = codes_of(prepare(prepared.graph, old));
    cure =
        "it is of a time when quant.activation_bits held for every edge and weight_bits for every weight: keep that "
        "with quant.layers: [{match: \"*\", weight_bits: " +
        std::to_string(old.weight_bits) + ", activation_bits: " + std::to_string(old.activation_bits) +
        "}] in the recipe of the run, or train again";
  }
  if (found.size() != expected.size())
    throw data_error("QAT state: it has other nodes than the recipe's section quant gives; " + cure);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const int32_t *was = found.data() + n * kCodes, *is = expected.data() + n * kCodes;
    if (!std::equal(was, was + kCodes, is))
      throw data_error("QAT state: node '" + nodes[n].name + "' had " + describe(was) + ", the recipe gives " +
                       describe(is) + "; " + cure);
  }
}

std::map<std::string, at::Tensor> save_state(const EdgeState& edges, ObserverKind kind) {
  const int64_t nodes = static_cast<int64_t>(edges.qparams.size());
  at::Tensor scale = at::zeros({nodes}, at::kFloat), zero_point = at::zeros({nodes}, at::kInt);
  at::Tensor range = at::zeros({nodes, 2}, at::kDouble), seen = at::zeros({nodes}, at::kInt);
  at::Tensor calibration = at::zeros({3}, at::kDouble);
  std::map<std::string, at::Tensor> state = {{"edges.scale", scale},
                                             {"edges.zero_point", zero_point},
                                             {"observer.range", range},
                                             {"observer.seen", seen},
                                             {"calibration", calibration}};
  double* settings = calibration.mutable_data_ptr<double>();
  settings[0] = static_cast<double>(edges.method);
  settings[1] = edges.percentile;
  settings[2] = edges.ready;
  for (int64_t n = 0; n < nodes; ++n) {
    const Statistics& s = edges.observers[n].statistics();
    scale.mutable_data_ptr<float>()[n] = edges.qparams[n].scale;
    zero_point.mutable_data_ptr<int32_t>()[n] = edges.qparams[n].zero_point;
    range.mutable_data_ptr<double>()[2 * n] = s.lo;
    range.mutable_data_ptr<double>()[2 * n + 1] = s.hi;
    seen.mutable_data_ptr<int32_t>()[n] = s.seen;
  }
  if (kind != ObserverKind::histogram) return state;
  at::Tensor histogram = at::zeros({nodes, kHistogramBins}, at::kDouble), ends = at::zeros({nodes, 2}, at::kFloat);
  for (int64_t n = 0; n < nodes; ++n) {
    const Statistics& s = edges.observers[n].statistics();
    std::copy(s.histogram.begin(), s.histogram.end(), histogram.mutable_data_ptr<double>() + n * kHistogramBins);
    ends.mutable_data_ptr<float>()[2 * n] = s.histogram_lo;
    ends.mutable_data_ptr<float>()[2 * n + 1] = s.histogram_hi;
  }
  state.emplace("observer.histogram", histogram);
  state.emplace("observer.histogram_range", ends);
  return state;
}

void load_state(const std::map<std::string, at::Tensor>& state, ObserverKind kind, EdgeState& edges) {
  EdgeState loaded = edges;
  const int64_t nodes = static_cast<int64_t>(edges.qparams.size());
  const at::Tensor scale = find(state, "edges.scale", {nodes}, at::kFloat);
  const at::Tensor zero_point = find(state, "edges.zero_point", {nodes}, at::kInt);
  const bool older = is_older(state);
  const at::Tensor range = find(state, "observer.range", {nodes, 2}, older ? at::kFloat : at::kDouble).to(at::kDouble);
  const at::Tensor seen = find(state, "observer.seen", {nodes}, at::kInt);
  const at::Tensor calibration = find(state, "calibration", {3}, at::kDouble);
  at::Tensor histogram, ends;
  if (kind == ObserverKind::histogram) {
    histogram = find(state, "observer.histogram", {nodes, kHistogramBins}, at::kDouble);
    ends = find(state, "observer.histogram_range", {nodes, 2}, at::kFloat);
  }
  const double* settings = calibration.const_data_ptr<double>();
  if (!(settings[0] >= 0 && settings[0] <= static_cast<double>(CalibrationMethod::entropy)))
    throw data_error("QAT state: no calibration method has the number " + std::to_string(settings[0]));
  for (int64_t n = 0; n < nodes; ++n) {
    Statistics s;
    s.lo = range.const_data_ptr<double>()[2 * n];
    s.hi = range.const_data_ptr<double>()[2 * n + 1];
    s.seen = seen.const_data_ptr<int32_t>()[n];
    if (older && s.seen != 0) s.seen = kernels::kManyBatches;
    if (histogram.defined() && s.seen != 0) {
      const double* counts = histogram.const_data_ptr<double>() + n * kHistogramBins;
      s.histogram.assign(counts, counts + kHistogramBins);
      s.histogram_lo = ends.const_data_ptr<float>()[2 * n];
      s.histogram_hi = ends.const_data_ptr<float>()[2 * n + 1];
    }
    loaded.observers[n].restore(s);
    QParams& q = loaded.qparams[n];
    q.scale = scale.const_data_ptr<float>()[n];
    q.zero_point = zero_point.const_data_ptr<int32_t>()[n];
    if (!(q.scale > 0) || !std::isfinite(q.scale) || q.zero_point < q.quant_min || q.zero_point > q.quant_max)
      throw data_error("QAT state: the qparams of node " + std::to_string(n) + " are impossible");
  }
  loaded.method = static_cast<CalibrationMethod>(static_cast<int>(settings[0]));
  loaded.percentile = settings[1];
  loaded.ready = settings[2] != 0;
  edges = std::move(loaded);
}

}  // namespace octet
