#include "src/qat/quantized_model.h"

#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/observe/edge_quantizer.h"
#include "kernels/observe/observe.h"
#include "src/common/error.h"
#include "src/model/device.h"
#include "src/model/parallel.h"
#include "src/qat/cuda_quantizers.h"
#include "src/qat/fake_quantize.h"
#include "src/qat/folded_batch_norm.h"
#include "src/qat/quantized_state.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"
#include "src/quant/qparams.h"
#include "src/quant/weight_scales.h"

namespace octet {
namespace {

/// Runs f; an Error of it gets the node's name.
template <class F>
auto at_node(const Node& node, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(error.code(), "'" + node.name + "': " + error.what());
  }
}

/// The smallest and the largest value, in one parallel pass over memory in any layout. All that a min-max or
/// moving-average observer looks at.
std::pair<float, float> extremes(const at::Tensor& x) {
  const at::Tensor values = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  const at::Tensor flat = values.as_strided({values.numel()}, {1}, values.storage_offset());
  if (flat.scalar_type() != at::kFloat) {
    const auto [lo, hi] = at::aminmax(flat);
    return {lo.item<float>(), hi.item<float>()};
  }
  constexpr int64_t kGrain = 65536;
  const float* data = flat.const_data_ptr<float>();
  std::mutex mutex;
  kernels::ValueRange all{data[0], data[0], true};
  share_among_threads(flat.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const kernels::ValueRange part = kernels::find_range(data + begin, end - begin);
    const std::lock_guard<std::mutex> lock(mutex);
    all = {std::min(all.lo, part.lo), std::max(all.hi, part.hi), all.finite && part.finite};
  });
  if (!all.finite) throw promise_error("an activation is NaN or infinite");
  return {all.lo, all.hi};
}

void observe(Observer& observer, ObserverKind kind, const at::Tensor& x) {
  const at::Tensor values = x.detach();
  if (kind == ObserverKind::histogram) {
    const at::Tensor flat = values.to(at::kFloat).contiguous(values.suggest_memory_format());
    observer.observe(flat.const_data_ptr<float>(), flat.numel());
  } else {
    const auto [lo, hi] = extremes(values);
    const float ends[] = {lo, hi};
    observer.observe(ends, 2);
  }
}

}  // namespace

FloatParams float_params(const Weights& weights) {
  FloatParams params;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor plain = to_host(tensor.detach());
    const float* data = plain.const_data_ptr<float>();
    params.emplace(name, std::vector<float>(data, data + plain.numel()));
  }
  return params;
}

struct QuantizedModel::Impl {
  Prepared prepared;
  Weights weights;
  ObserverKind kind;
  bool mse_weights;
  std::vector<Observer> calibrators;     ///< histograms, by node; what calibrate() looks at
  EdgeState edges;                       ///< what QAT moves and a checkpoint keeps; older than the GPU's, if it has one
  std::unique_ptr<CudaQuantizers> cuda;  ///< null on the CPU

  bool has_edge(int node) const { return prepared.root[node] == node && !prepared.float_output(node); }

  /// The quantizers where the weights are now.
  CudaQuantizers* quantizers_on_gpu() {
    const at::Device device = weights.empty() ? at::Device(at::kCPU) : weights.begin()->second.device();
    if (cuda && cuda->device() != device) {
      fetch();
      cuda.reset();
    }
    if (device.is_cuda() && !cuda) {
      cuda = make_cuda_quantizers(prepared, {mse_weights, edges.observers[0].averaging()}, device);
      cuda->upload(edges);
    }
    return cuda.get();
  }

  const EdgeState& fetch() {
    if (cuda) cuda->download(edges);
    return edges;
  }

  std::vector<float> scales_of(int node, const at::Tensor& weight) const {
    // Row-major for the search, whose sums depend on the order; a maximum does not.
    at::Tensor w = weight.is_cpu() ? weight.detach() : to_host(weight.detach());
    if (mse_weights || !w.is_contiguous(at::MemoryFormat::ChannelsLast)) w = w.contiguous();
    const float* data = w.const_data_ptr<float>();
    const int channels = static_cast<int>(w.size(0));
    const long per_channel = w.numel() / channels;
    const WeightSpec spec{prepared.weight_codes(node), prepared.spec.weight_granularity};
    return mse_weights ? weight_scales_mse(data, channels, per_channel, spec)
                       : octet::weight_scales(data, channels, per_channel, spec);
  }

  WalkHooks cpu_hooks(const Mode& mode);

  void set_edge(int node, const QParams& qparams) {
    for (size_t n = 0; n < edges.qparams.size(); ++n)
      if (prepared.root[n] == node) edges.qparams[n] = qparams;
  }

  /// The observer sees a training batch and the edge's qparams follow it.
  void follow(int node, const at::Tensor& x) {
    Observer& observer = edges.observers[node];
    observe(observer, kind, x);
    const Statistics& s = observer.statistics();
    const QParams& range = prepared.range[node];
    set_edge(node, kind == ObserverKind::histogram
                       ? octet::calibrate(s, edges.method, edges.percentile, range, prepared.affine[node])
                       : choose_qparams(s.lo, s.hi, range, prepared.affine[node]));
  }
};

QuantizedModel::QuantizedModel(Prepared prepared, Weights weights, ObserverKind observer, double averaging,
                               bool mse_weights)
    : impl_(std::make_shared<Impl>()) {
  const size_t nodes = prepared.graph.nodes.size();
  impl_->calibrators.assign(nodes, Observer(ObserverKind::histogram));
  impl_->edges.observers.assign(nodes, Observer(observer, averaging));
  impl_->edges.qparams = prepared.range;
  impl_->prepared = std::move(prepared);
  impl_->weights = std::move(weights);
  impl_->kind = observer;
  impl_->mse_weights = mse_weights;
}

WalkHooks QuantizedModel::Impl::cpu_hooks(const Mode& mode) {
  WalkHooks hooks;
  if (mode.quantize) {
    hooks.parameters = [this, fold = !mode.batch_norm_training](int n, const LayerParameters& own) {
      const Node& node = prepared.graph.nodes[n];
      return at_node(node, [&] {
        const LayerParameters layer{
            fake_quantize_weight(own.weight, scales_of(n, own.weight), prepared.weight_codes(n)), own.bias};
        if (!fold || node.batch_norm.empty()) return layer;
        return fold_batch_norm(layer, gain_and_bias(fixed_batch_norm(weights, node.batch_norm, own.bias)));
      });
    };
  }
  hooks.output = [this, mode](int node, at::Tensor y) {
    if (!has_edge(node)) return y;
    return at_node(prepared.graph.nodes[node], [&] {
      if (mode.observe && mode.quantize) follow(node, y);
      if (mode.observe && !mode.quantize) observe(calibrators[node], ObserverKind::histogram, y);
      return mode.quantize ? fake_quantize(y, edges.qparams[node]) : y;
    });
  };
  return hooks;
}

at::Tensor QuantizedModel::forward(const at::Tensor& x, const Mode& mode, const Look& look) {
  Impl& impl = *impl_;
  if (mode.quantize && !mode.observe && !impl.edges.ready)
    throw promise_error("the network has no activation scales yet: calibrate it, or observe while training");
  WalkHooks hooks;
  if (CudaQuantizers* cuda = impl.quantizers_on_gpu()) {
    if (mode.quantize && mode.observe) require_observer(impl.kind, at::kCUDA);
    if (mode.quantize)
      hooks =
          cuda->quantizing_hooks(impl.weights, {.observe = mode.observe, .fold_batch_norm = !mode.batch_norm_training});
    if (mode.observe && !mode.quantize) hooks = cuda->calibrating_hooks();
  } else {
    hooks = impl.cpu_hooks(mode);
  }
  if (look) {
    hooks.output = [&look, quantize = std::move(hooks.output)](int node, at::Tensor y) {
      if (quantize) y = quantize(node, std::move(y));
      look(node, y);
      return y;
    };
  }
  const at::Tensor logits =
      walk(impl.prepared.graph, impl.weights, x, {mode.training, mode.batch_norm_training}, hooks);
  if (mode.observe && mode.quantize) impl.edges.ready = true;
  return logits;
}

void QuantizedModel::calibrate(CalibrationMethod method, double percentile) {
  Impl& impl = *impl_;
  impl.fetch();
  if (impl.cuda) impl.cuda->download_histograms(impl.calibrators);
  const std::vector<Node>& nodes = impl.prepared.graph.nodes;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    if (!impl.has_edge(n)) continue;
    at_node(nodes[n], [&] {
      const Statistics& seen = impl.calibrators[n].statistics();
      if (seen.seen == 0) throw promise_error("calibration saw no image");
      const QParams q = octet::calibrate(seen, method, percentile, impl.prepared.range[n], impl.prepared.affine[n]);
      impl.set_edge(n, q);
      // QAT goes on from here: the observers start with the calibrated range, not with the first batch's.
      Statistics start = seen;
      if (impl.kind != ObserverKind::histogram) {
        const kernels::RunningRange range = kernels::range_of_qparams(q, impl.prepared.affine[n]);
        start = {.lo = range.lo, .hi = range.hi, .seen = range.seen};
      }
      impl.edges.observers[n].restore(start);
      return 0;
    });
  }
  impl.edges.method = method;
  impl.edges.percentile = percentile;
  impl.edges.ready = true;
  if (impl.cuda) impl.cuda->upload(impl.edges);
}

void QuantizedModel::restart_observers() {
  impl_->fetch();
  for (Observer& observer : impl_->edges.observers) observer.restore({});
  if (impl_->cuda) impl_->cuda->upload(impl_->edges);
}

void QuantizedModel::require_finite() const {
  if (impl_->cuda) impl_->cuda->require_finite();
}

void require_observer(ObserverKind observer, at::DeviceType device) {
  if (device == at::kCUDA && observer == ObserverKind::histogram)
    throw usage_error(
        "quant.observer: histogram chooses its range on the CPU and cannot follow QAT on the GPU; set "
        "quant.observer: moving_average or quant.scales: fixed, or train on the CPU");
}

bool QuantizedModel::has_scales() const { return impl_->edges.ready; }
const Prepared& QuantizedModel::prepared() const { return impl_->prepared; }
const Weights& QuantizedModel::weights() const { return impl_->weights; }
std::vector<QParams> QuantizedModel::edges() const { return impl_->fetch().qparams; }

FloatParams QuantizedModel::weight_scales() const {
  FloatParams scales;
  const std::vector<Node>& nodes = impl_->prepared.graph.nodes;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n)
    if (has_weight(nodes[n].op))
      scales.emplace(nodes[n].name, impl_->scales_of(n, impl_->weights.at(nodes[n].name + ".weight")));
  return scales;
}

Int8Graph QuantizedModel::convert(const Preprocessing& preprocessing,
                                  const std::vector<std::string>& class_names) const {
  if (!impl_->edges.ready) throw promise_error("convert: the network has no activation scales yet: calibrate it first");
  return octet::convert(impl_->prepared, float_params(impl_->weights), edges(), weight_scales(), preprocessing,
                        class_names);
}

std::map<std::string, at::Tensor> QuantizedModel::state() const {
  std::map<std::string, at::Tensor> state = save_state(impl_->fetch(), impl_->kind);
  save_codes(impl_->prepared, state);
  return state;
}

void QuantizedModel::load_state(const std::map<std::string, at::Tensor>& state) {
  require_codes(state, impl_->prepared);
  octet::load_state(state, impl_->kind, impl_->edges);
  if (impl_->cuda) impl_->cuda->upload(impl_->edges);
}

}  // namespace octet
