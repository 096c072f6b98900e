// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/quantizers.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>
#include <utility>

#include "kernels/conv/cuda_repack.h"
#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/quant/calibrate.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "src/train/qat/fake_quantize.h"

namespace octet {

std::vector<float> weight_scales(const Prepared& prepared, int node, const at::Tensor& weight,
                                 WeightCalibrator calibrator) {
  const bool mse = least_squares(calibrator);
  // The search needs row-major weights, since its sums depend on the order; a maximum does not.
  at::Tensor w = weight.is_cpu() ? weight.detach() : to_host(weight.detach());
  if (mse || !w.is_contiguous(at::MemoryFormat::ChannelsLast)) w = w.contiguous();
  const int channels = static_cast<int>(w.size(0));
  const float* values = w.const_data_ptr<float>();
  const WeightSpec spec{prepared.weight_codes(node), prepared.spec.weight_granularity};
  return mse ? weight_scales_mse(values, channels, w.numel() / channels, spec)
             : weight_scales(values, channels, w.numel() / channels, spec);
}

std::vector<at::Tensor> by_node(const at::Tensor& weights, const Graph& graph) {
  std::vector<at::Tensor> parts(graph.nodes.size());
  if (!weights.defined()) return parts;
  std::vector<int64_t> sizes;
  for (const Node& node : graph.nodes) sizes.push_back(has_weight(node.op) ? node.out_channels : 0);
  return weights.split_with_sizes(sizes);
}

namespace {

/// Returns minimum and maximum, which is all that minmax and moving_average observe, in one parallel pass over memory
/// of any layout. Both are NaN where a value is not finite: what has shares of a batch tells the others so.
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
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return all.finite ? std::pair(all.lo, all.hi) : std::pair(kNan, kNan);
}

/// Returns minimum and maximum over all shares of a batch.
std::pair<float, float> extremes(std::pair<float, float> mine, const GatherShares& gather) {
  const auto [lo, hi] = at::aminmax(gather(at::tensor({mine.first, mine.second})));
  return {lo.item<float>(), hi.item<float>()};
}

/// Shows x to a histogram. Threads count parts of it, which together give the same bits.
void count_values(Observer& histogram, const at::Tensor& x) {
  constexpr int64_t kGrain = 1 << 17;  // a thread takes at least so many values
  const at::Tensor flat = x.to(at::kFloat).contiguous(x.suggest_memory_format());
  const float* values = flat.const_data_ptr<float>();
  const int seen = histogram.statistics().seen;
  std::mutex mutex;
  share_among_threads(flat.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Observer part(ObserverKind::histogram);
    part.observe(values + begin, static_cast<size_t>(end - begin));
    const std::lock_guard<std::mutex> lock(mutex);
    histogram.add(part.statistics());
  });
  Statistics all = histogram.statistics();
  all.seen = std::min(seen + 1, kernels::kManyBatches);
  histogram.restore(all);
}

/// Shows x to the observer. If `shares` is given, x is one share of a batch, and minimum and maximum are the batch's.
void observe(Observer& observer, ObserverKind kind, const at::Tensor& x, const GatherShares* shares = nullptr) {
  const at::Tensor values = x.detach();
  if (kind == ObserverKind::histogram) {
    count_values(observer, values);
  } else {
    auto [lo, hi] = extremes(values);
    if (shares != nullptr) std::tie(lo, hi) = extremes({lo, hi}, *shares);
    if (!std::isfinite(lo) || !std::isfinite(hi)) throw promise_error("an activation is NaN or infinite");
    const float ends[] = {lo, hi};
    observer.observe(ends, 2);
  }
}

class CpuQuantizers : public Quantizers {
 public:
  CpuQuantizers(const Prepared& prepared, const QuantizerOptions& options)
      : prepared_(prepared), options_(options), histograms_(nodes().size(), Observer(ObserverKind::histogram)) {}

  at::Device device() const override { return at::kCPU; }
  WalkHooks quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) override;
  WalkHooks calibrating_hooks() override;
  void upload(const EdgeState& edges) override { edges_ = edges; }
  void download(EdgeState& edges) const override {
    edges.qparams = edges_.qparams;
    edges.observers = edges_.observers;
  }
  void download_histograms(std::vector<Observer>& observers) const override;
  void require_finite() const override {}

 private:
  const std::vector<Node>& nodes() const { return prepared_.graph.nodes; }
  at::Tensor quantized_weight(int node, const at::Tensor& weight, const at::Tensor& scales) const;
  at::Tensor quantized_edge(int node, const at::Tensor& y, const LearnedEdge& learned, const Walk& walk);
  void follow(int node, const at::Tensor& x, const GatherShares* shares);

  const Prepared& prepared_;
  const QuantizerOptions options_;
  EdgeState edges_;
  std::vector<Observer> histograms_;  // by node
};

/// `scales` are those that learn, or undefined.
at::Tensor CpuQuantizers::quantized_weight(int node, const at::Tensor& weight, const at::Tensor& scales) const {
  const WeightCodes codes = prepared_.weight_codes(node);
  if (!scales.defined())
    return fake_quantize_weight(weight, weight_scales(prepared_, node, weight, options_.weights), codes);
  if (!weight.detach().isfinite().all().item<bool>()) throw promise_error("a weight is not finite");
  return learned_fake_quantize_weight(weight, scales, codes);
}

/// Shows a training batch to the edge's observer; the edge's qparams follow it.
void CpuQuantizers::follow(int n, const at::Tensor& x, const GatherShares* shares) {
  Observer& observer = edges_.observers[n];
  observe(observer, options_.observer, x, shares);
  const Statistics& s = observer.statistics();
  const QParams& range = prepared_.range[n];
  edges_.set(n,
             options_.observer == ObserverKind::histogram
                 ? calibrate(s, edges_.method, edges_.percentile, range, prepared_.affine[n])
                 : choose_qparams(s.lo, s.hi, range, prepared_.affine[n]),
             prepared_);
}

at::Tensor CpuQuantizers::quantized_edge(int n, const at::Tensor& y, const LearnedEdge& learned, const Walk& walk) {
  if (walk.observe) follow(n, y, walk.shares);
  return learned.defined() ? learned_fake_quantize(y, learned, edges_.qparams[n]) : fake_quantize(y, edges_.qparams[n]);
}

WalkHooks CpuQuantizers::quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) {
  WalkHooks hooks;
  hooks.parameters = [this, &weights, walk, scales = by_node(learned.weights, prepared_.graph)](
                         int n, const LayerParameters& own) {
    const Node& node = nodes()[n];
    return at_node(node, [&] {
      const LayerParameters layer{quantized_weight(n, own.weight, scales[n]), own.bias};
      if (!walk.fold_batch_norm || node.batch_norm.empty()) return layer;
      return fold_batch_norm(layer, gain_and_bias(fixed_batch_norm(weights, node, own.bias)));
    });
  };
  hooks.output = [this, walk, ranges = learned_edges(learned.edges, learned.offsets, options_.edges, nodes().size())](
                     int node, at::Tensor y) {
    if (!prepared_.has_edge(node)) return y;
    return at_node(nodes()[node], [&] { return quantized_edge(node, y, ranges[node], walk); });
  };
  return hooks;
}

WalkHooks CpuQuantizers::calibrating_hooks() {
  WalkHooks hooks;
  hooks.output = [this](int node, at::Tensor y) {
    if (!prepared_.has_edge(node)) return y;
    return at_node(nodes()[node], [&] {
      observe(histograms_[node], ObserverKind::histogram, y);
      return y;
    });
  };
  return hooks;
}

void CpuQuantizers::download_histograms(std::vector<Observer>& observers) const {
  for (size_t n = 0; n < histograms_.size(); ++n)
    if (histograms_[n].statistics().seen > 0) observers[n] = histograms_[n];
}

}  // namespace

kernels::Clamp clamp_of(Activation activation) {
  if (activation == Activation::none) return kernels::kNoClamp;
  return activation == Activation::relu ? kernels::kRelu : kernels::kRelu6;
}

void require_observer(ObserverKind observer, at::DeviceType device) {
  if (device == at::kCUDA && observer == ObserverKind::histogram)
    throw usage_error(
        "quant.observer: histogram chooses its range on the CPU and cannot follow QAT on the GPU; set "
        "quant.observer: moving_average or quant.scales: fixed, or train on the CPU");
}

std::unique_ptr<Quantizers> make_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                            at::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuQuantizers>(prepared, options);
#if OCTET_CUDA
  return make_cuda_quantizers(prepared, options, device);
#else
  throw no_cuda(device);
#endif
}

void require_int8_forward(const Prepared& prepared, EdgeScales edges, at::DeviceType device) {
  const auto refuse = [](const std::string& why, const std::string& cure) {
    throw usage_error("qat.forward: int8 " + why + "; set " + cure + ", or qat.forward: simulation");
  };
  if (device != at::kCUDA) throw usage_error("qat.forward: int8 runs on a GPU only; set qat.forward: simulation");
  if (learn(edges))
    refuse("keeps codes, from which ranges cannot learn (quant.scales auto: lsq below 8 bits)",
           "quant.scales: fixed or observed");
  for (size_t n = 0; n < prepared.graph.nodes.size(); ++n) {
    const Node& node = prepared.graph.nodes[n];
    const std::string head = "cannot train '" + node.name + "': ";
    if (node.op == Op::prelu)
      throw usage_error("qat.forward: int8 " + head + "its slopes train; set qat.forward: simulation");
    if (prepared.sparse[n]) refuse(head + "2:4 sparse weights are chosen anew in each step", "quant.sparsity: none");
    if (!has_weight(node.op)) continue;
    if (node.op == Op::conv2d && long{node.window.kernel_h} * node.window.kernel_w > kernels::kMostRepackedTaps)
      throw usage_error("qat.forward: int8 " + head + "its kernel has more than 64 taps; set qat.forward: simulation");
    const int bits = prepared.bits.activation_bits[n];
    if (prepared.has_edge(static_cast<int>(n)) && bits < kFewestBitsOnCodes)
      refuse(head + "it writes codes of " + std::to_string(bits) +
                 " bits, and where they end the gradient is known by the code alone",
             std::to_string(kFewestBitsOnCodes) +
                 " bits for it or more (quant.activation_bits, quant.layers, quant.last_layer_bits)");
  }
}

}  // namespace octet
