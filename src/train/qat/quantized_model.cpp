// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/quantized_model.h"
#include "src/quant/functions.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/qat/int8_forward.h"
#include "src/train/qat/quantizers.h"

namespace octet {

struct QuantizedModel::Impl {
  Prepared prepared;
  Weights weights;
  QuantizerOptions options;
  std::vector<Observer> calibrators;  ///< histograms, by node, of what this model saw
  std::vector<Observer> seen_by_all;  ///< with what other processes saw, as of calibrate()
  EdgeState edges;                    ///< what a checkpoint saves, as of the last fetch()
  LearnedScales learned;
  at::Tensor highest_codes;                ///< float [nodes], where learned.offsets are
  std::unique_ptr<Quantizers> quantizers;  ///< null before the first walk
  Int8Networks int8{[this] { return fetch().qparams; }};

  bool learns() const { return learned.edges.defined() || learned.weights.defined(); }

  /// Returns the quantizers, which are first moved to where the weights are now.
  Quantizers& at_weights() {
    const at::Device device = weights.empty() ? at::Device(at::kCPU) : weights.begin()->second.device();
    if (quantizers && quantizers->device() != device) {
      fetch();
      quantizers->download_histograms(calibrators);
      quantizers.reset();
      int8.clear();
    }
    if (!quantizers) {
      quantizers = make_quantizers(prepared, options, device);
      quantizers->upload(edges);
      for (at::Tensor* scales : {&learned.edges, &learned.offsets, &learned.weights, &highest_codes})
        if (scales->defined()) scales->set_data(scales->detach().to(device));
    }
    return *quantizers;
  }

  /// Returns `edges` as of now: what the quantizers have, and learned scales.
  const EdgeState& fetch() {
    if (quantizers) quantizers->download(edges);
    if (!learned.edges.defined() || !edges.ready) return edges;  // if not ready, learning has not begun
    const at::Tensor values = to_host(learned.edges.detach());
    at::Tensor offsets = learned.offsets;
    if (offsets.defined()) offsets = to_host(offsets.detach());
    for (size_t n = 0; n < edges.qparams.size(); ++n) {
      const int root = prepared.root[n];
      const kernels::LearnedRange range{rule_of(options.edges), values.const_data_ptr<float>()[root],
                                        offsets.defined() ? offsets.const_data_ptr<float>()[root] : 0};
      edges.qparams[n] = range.qparams(edges.qparams[n]);
    }
    return edges;
  }

  /// Sets learned scales and offsets to those of `edges`.
  void start_learning_edges() {
    const c10::NoGradGuard no_grad;
    std::vector<float> values, offsets;
    for (const QParams& q : edges.qparams) {
      values.push_back(q.scale);
      offsets.push_back(-q.scale * static_cast<float>(q.zero_point));
    }
    if (learned.edges.defined()) learned.edges.copy_(at::tensor(values));
    if (learned.offsets.defined()) learned.offsets.copy_(at::tensor(offsets));
  }

  /// Sets learned scales of weights to those of the weights, whose search takes long.
  void start_learning_weights() {
    if (!learned.weights.defined()) return;
    const c10::NoGradGuard no_grad;
    std::vector<float> scales;
    for_weights(used_weights(), [&](int n, const at::Tensor& weight) {
      const std::vector<float> of_node = octet::weight_scales(prepared, n, weight, options.weights);
      scales.insert(scales.end(), of_node.begin(), of_node.end());
    });
    learned.weights.copy_(at::tensor(scales));
  }

  /// Calls f(node, weight) for every convolution and linear.
  template <class F>
  void for_weights(const Weights& of, const F& f) const {
    const std::vector<Node>& nodes = prepared.graph.nodes;
    for (int n = 0; n < static_cast<int>(nodes.size()); ++n)
      if (has_weight(nodes[n].op)) f(n, of.at(nodes[n].name + ".weight"));
  }

  Weights used_weights() const { return sparse_weights(prepared, weights); }

  /// Whether forward() runs on codes in this mode.
  bool on_codes(const Mode& mode) const {
    return options.forward == QatForward::int8 && mode.training && mode.quantize && !mode.batch_norm_training &&
           !mode.observe;
  }

  /// Returns the hooks of a walk over the weights `of`, which must outlive them.
  WalkHooks quantizing_hooks(const Mode& mode, const Weights& of);

  /// Returns those of quantizing_hooks() in evaluation mode. Throws Error(promise) before there are qparams.
  WalkHooks evaluating_hooks(const Weights& of) {
    if (!edges.ready) throw promise_error("the network has no scales yet: calibrate it");
    return at_weights().quantizing_hooks(of, learned, {.fold_batch_norm = true});
  }

  /// Sets the qparams of a calibrated edge. QAT continues from there: observers start with the calibrated range, not
  /// with the first batch's.
  void set_edge(int node, const QParams& q) {
    edges.set(node, q, prepared);
    Statistics start = seen_by_all[node].statistics();
    if (options.observer != ObserverKind::histogram) {
      const kernels::RunningRange range = kernels::range_of_qparams(q, prepared.affine[node]);
      start = {.lo = range.lo, .hi = range.hi, .seen = range.seen};
    }
    edges.observers[node].restore(start);
  }

  void upload() {
    int8.ranges_may_differ();
    if (quantizers) quantizers->upload(edges);
  }
};

QuantizedModel::QuantizedModel(Prepared prepared, Weights weights, const QuantizerOptions& options)
    : impl_(std::make_shared<Impl>()) {
  const size_t nodes = prepared.graph.nodes.size();
  impl_->calibrators.assign(nodes, Observer(ObserverKind::histogram));
  impl_->edges.observers.assign(nodes, Observer(options.observer, options.averaging));
  impl_->edges.qparams = prepared.range;
  impl_->prepared = std::move(prepared);
  impl_->weights = std::move(weights);
  impl_->options = options;
  const at::TensorOptions floats = at::TensorOptions(device_of(impl_->weights)).dtype(at::kFloat);
  const auto make = [&](int64_t count) { return at::ones({count}, floats).set_requires_grad(true); };
  if (learn(options.edges)) impl_->learned.edges = make(static_cast<int64_t>(nodes));
  if (options.edges == EdgeScales::lsq_plus) {
    if (impl_->prepared.spec.activation != ActivationScheme::affine_u8)
      throw promise_error("offsets learn zero points, which only affine_u8 has");
    impl_->learned.offsets = make(static_cast<int64_t>(nodes));
    std::vector<float> highest;
    for (const QParams& q : impl_->prepared.range) highest.push_back(static_cast<float>(q.quant_max));
    impl_->highest_codes = at::tensor(highest).to(floats);
  }
  if (options.weights == WeightCalibrator::lsq) {
    int64_t channels = 0;
    impl_->for_weights(impl_->weights, [&](int, const at::Tensor& weight) { channels += weight.size(0); });
    impl_->learned.weights = make(channels);
  }
}

WalkHooks QuantizedModel::Impl::quantizing_hooks(const Mode& mode, const Weights& of) {
  if (!edges.ready && (!mode.observe || learns()))
    throw promise_error("the network has no scales yet: calibrate it, or observe while training what does not learn");
  if (mode.observe && learned.edges.defined())
    throw promise_error("learned scales of activations do not follow observers");
  if (mode.observe) require_observer(options.observer, at_weights().device().type());
  const Quantizers::Walk walk{mode.observe, !mode.batch_norm_training, mode.range_shares, mode.joins_nodes};
  return at_weights().quantizing_hooks(of, learned, walk);
}

WalkHooks QuantizedModel::quantizing_hooks(const Mode& mode) {
  const std::vector<bool>& sparse = impl_->prepared.sparse;
  if (std::find(sparse.begin(), sparse.end(), true) != sparse.end())
    throw promise_error("2:4 sparse weights are chosen from all of them in each step: such a network is walked whole");
  return impl_->quantizing_hooks(mode, impl_->weights);
}

at::Tensor QuantizedModel::forward(const at::Tensor& x, const Mode& asked, const Look& look) {
  Impl& impl = *impl_;
  Mode mode = asked;
  mode.joins_nodes = !look;
  const Weights weights = impl.used_weights();
  WalkHooks hooks;
  if (mode.quantize) hooks = impl.quantizing_hooks(mode, weights);
  if (impl.on_codes(mode)) return impl.int8.forward(impl.prepared, impl.weights, hooks, x, look);
  if (mode.observe && !mode.quantize) hooks = impl.at_weights().calibrating_hooks();
  if (look) {
    hooks.output = [&look, quantize = std::move(hooks.output)](int node, at::Tensor y) {
      if (quantize) y = quantize(node, std::move(y));
      look(node, y);
      return y;
    };
  }
  const at::Tensor logits =
      walk(impl.prepared.graph, weights, x, {mode.training, mode.batch_norm_training, mode.batch_norm_shares}, hooks);
  if (mode.observe && mode.quantize) {
    impl.edges.ready = true;
    impl.int8.ranges_may_differ();  // also in the steps that a recording of this one replays
  }
  return logits;
}

int QuantizedModel::launches(const Mode& mode) {
  if (mode.observe && mode.quantize && impl_->quantizers) impl_->quantizers->ranges_move();
  return impl_->on_codes(mode) ? impl_->int8.version() : 0;
}

void QuantizedModel::forward_changing(const at::Tensor& x, const Change& change) {
  Impl& impl = *impl_;
  const Weights weights = impl.used_weights();
  WalkHooks hooks = impl.evaluating_hooks(weights);
  const Graph& graph = impl.prepared.graph;
  hooks.finish = [&, finish = std::move(hooks.finish)](int node, const Unfinished& y) {
    Unfinished changed = y;
    change(node, changed);
    if (finish) return finish(node, changed);
    return finished(changed, graph.nodes[node].activation);
  };
  walk(graph, weights, x, {}, hooks);
}

at::Tensor QuantizedModel::forward_partly(const at::Tensor& x, const std::vector<bool>& quantized, const Look& look,
                                          int after) {
  Impl& impl = *impl_;
  const Weights weights = impl.used_weights();
  const bool any = std::find(quantized.begin(), quantized.end(), true) != quantized.end();
  const WalkHooks all = any ? impl.evaluating_hooks(weights) : WalkHooks{};
  const Graph& graph = impl.prepared.graph;
  WalkHooks some;
  some.parameters = [&](int node, const LayerParameters& own) {
    return quantized[node] && all.parameters ? all.parameters(node, own) : own;
  };
  if (all.finish) {
    some.finish = [&](int node, const Unfinished& y) {
      if (quantized[node]) return all.finish(node, y);
      return finished(y, graph.nodes[node].activation);
    };
  }
  some.output = [&](int node, at::Tensor y) {
    if (quantized[node] && all.output) y = all.output(node, std::move(y));
    if (look) look(node, y);
    return y;
  };
  return walk(graph, weights, x, {}, some, after);
}

void QuantizedModel::calibrate(CalibrationMethod method, double percentile, const Merge& merge) {
  Impl& impl = *impl_;
  impl.fetch();
  if (impl.quantizers) impl.quantizers->download_histograms(impl.calibrators);
  impl.seen_by_all = impl.calibrators;
  if (merge) merge(impl.seen_by_all);
  choose_edges(method, percentile);
  impl.start_learning_weights();
}

void QuantizedModel::choose_edges(CalibrationMethod method, double percentile) {
  Impl& impl = *impl_;
  const std::vector<Node>& nodes = impl.prepared.graph.nodes;
  const std::vector<std::vector<int>> lookups = only_lookups(impl.prepared);
  Weights scales;  // of lookups that have one for each channel
  for (const Node& node : nodes)
    if (node.op == Op::lookup && node.groups > 1)
      for (const char* scale : {".input_scale", ".output_scale"})
        scales.emplace(node.name + scale, impl.weights.at(node.name + scale));
  const FloatParams params = float_params(scales);
  std::vector<QParams> chosen(nodes.size());
  share_among_threads(static_cast<int64_t>(nodes.size()), /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (auto n = static_cast<int>(begin); n < end; ++n)
      if (impl.prepared.has_edge(n))
        chosen[n] = at_node(nodes[n], [&] {
          if (impl.seen_by_all[n].statistics().seen == 0) throw promise_error("calibration saw no image");
          const Statistics seen = told_apart(impl.seen_by_all[n].statistics(), impl.prepared, lookups[n], params);
          return octet::calibrate(seen, method, percentile, impl.prepared.range[n], impl.prepared.affine[n]);
        });
  });
  impl.edges.ready = true;
  set_edges(chosen, method, percentile);
}

void QuantizedModel::set_edges(const std::vector<QParams>& qparams, CalibrationMethod method, double percentile) {
  impl_->edges.method = method;
  impl_->edges.percentile = percentile;
  set_edges(qparams);
}

void QuantizedModel::set_edges(const std::vector<QParams>& qparams) {
  for (int n = 0; n < static_cast<int>(qparams.size()); ++n)
    if (impl_->prepared.has_edge(n)) impl_->set_edge(n, qparams[n]);
  impl_->upload();
  impl_->start_learning_edges();
}

std::vector<QuantizedModel::WideEdge> QuantizedModel::wide_edges(double times) const {
  const std::vector<QParams> qparams = edges();
  std::vector<WideEdge> wide;
  for (size_t n = 0; n < impl_->seen_by_all.size(); ++n) {
    if (!impl_->prepared.has_edge(static_cast<int>(n))) continue;
    const Reach reach = reach_of(impl_->seen_by_all[n].statistics(), qparams[n]);
    if (reach.values > 0 && reach.codes >= times * reach.values)
      wide.push_back({impl_->prepared.graph.nodes[n].name, reach});
  }
  std::stable_sort(wide.begin(), wide.end(), [](const WideEdge& a, const WideEdge& b) {
    return a.reach.codes / a.reach.values > b.reach.codes / b.reach.values;
  });
  return wide;
}

void QuantizedModel::restart_observers() {
  impl_->fetch();
  for (Observer& observer : impl_->edges.observers) observer.restore({});
  impl_->upload();
}

void QuantizedModel::require_finite() const {
  for (const auto& [name, scales] : learned_scales())
    if (!scales.detach().isfinite().all().item<bool>())
      throw promise_error("'" + name + "': a learned scale is NaN or infinite: the network diverged");
  if (impl_->quantizers) impl_->quantizers->require_finite();
}

void QuantizedModel::see_as(const QuantizedModel& other) { impl_->calibrators = other.impl_->calibrators; }
bool QuantizedModel::has_scales() const { return impl_->edges.ready; }
const Prepared& QuantizedModel::prepared() const { return impl_->prepared; }
const Weights& QuantizedModel::weights() const { return impl_->weights; }
Weights QuantizedModel::used_weights() const { return impl_->used_weights(); }
std::vector<QParams> QuantizedModel::edges() const { return impl_->fetch().qparams; }

Weights QuantizedModel::learned_scales() const {
  Weights scales;
  if (impl_->learned.edges.defined()) scales.emplace("edges.scale", impl_->learned.edges);
  if (impl_->learned.offsets.defined()) scales.emplace("edges.offset", impl_->learned.offsets);
  if (impl_->learned.weights.defined()) scales.emplace("weights.scale", impl_->learned.weights);
  return scales;
}

void QuantizedModel::hold_zero_points() {
  const LearnedScales& learned = impl_->learned;
  if (!learned.offsets.defined()) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor lowest = learned.edges.mul(impl_->highest_codes).neg_();  // the zero point is the highest code
  impl_->learned.offsets.copy_(at::maximum(learned.offsets, lowest).clamp_max_(0));
}

FloatParams QuantizedModel::weight_scales() const {
  FloatParams scales;
  const Prepared& prepared = impl_->prepared;
  at::Tensor learned = impl_->learned.weights;
  if (learned.defined()) learned = to_host(learned.detach());
  const std::vector<at::Tensor> of_nodes = by_node(learned, prepared.graph);
  impl_->for_weights(impl_->used_weights(), [&](int n, const at::Tensor& weight) {
    std::vector<float>& of_node = scales[prepared.graph.nodes[n].name];
    if (!learned.defined()) {
      of_node = octet::weight_scales(prepared, n, weight, impl_->options.weights);
    } else {
      const float* first = of_nodes[n].const_data_ptr<float>();
      of_node.assign(first, first + of_nodes[n].numel());
    }
  });
  return scales;
}

Int8Graph QuantizedModel::convert(const Preprocessing& preprocessing,
                                  const std::vector<std::string>& class_names) const {
  if (!impl_->edges.ready) throw promise_error("convert: the network has no activation scales yet: calibrate it first");
  return octet::convert(impl_->prepared, float_params(impl_->used_weights()), edges(), weight_scales(), preprocessing,
                        class_names);
}

std::map<std::string, at::Tensor> QuantizedModel::state() const {
  std::map<std::string, at::Tensor> state = save_state(impl_->fetch(), impl_->options.observer);
  save_codes(impl_->prepared, state);
  const auto keep = [&](const char* name, const at::Tensor& values) {
    if (values.defined()) state.emplace(name, values.detach().to(at::kCPU, at::kFloat, false, /*copy=*/true));
  };
  keep("weights.scale", impl_->learned.weights);
  keep("edges.offset", impl_->learned.offsets);
  return state;
}

void QuantizedModel::load_state(const std::map<std::string, at::Tensor>& state) {
  require_codes(state, impl_->prepared);
  const at::Tensor of_weights = learned_weight_scales(state, impl_->learned.weights);
  LearnedScales& learned = impl_->learned;
  const at::Tensor offsets = learned_offsets(state, learned.offsets);
  octet::load_state(state, impl_->options.observer, impl_->edges);
  impl_->upload();
  const c10::NoGradGuard no_grad;
  if (of_weights.defined()) learned.weights.copy_(of_weights);
  if (offsets.defined()) learned.offsets.copy_(offsets);
  if (learned.edges.defined()) learned.edges.copy_(state.at("edges.scale"));
}

}  // namespace octet
