// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/operators.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/qat/joined_operators.h"
#include "src/train/qat/quantizers.h"

namespace octet {
namespace {

[[noreturn]] void refuse(const Node& node, const char* what) {
  throw promise_error("'" + node.name + "': " + what + ": the network diverged");
}

/// Layers whose weights are quantized in one launch when a walk gets to the first of them. In the backward pass their
/// gradients are complete at that layer, so that their exchange with other processes overlaps with the rest of it.
struct LayerGroup {
  std::vector<int> nodes;
  int64_t first_weight = 0, first_scale = 0, scales = 0;  // indices into the tensors of all layers
};
/// Weights in a group. The first group is small, since no backward pass is left for its exchange to overlap with.
constexpr int64_t kFirstLayers = 1 << 18, kLayers = 4 << 20;

/// What layers of a walk have done for the nodes behind them.
class Joined {
 public:
  explicit Joined(size_t nodes) : outputs_(nodes), functions_(nodes), made_again_(nodes) {}

  /// Keeps the output of a node with several readers, until the last reader takes the twin, so that the gradients of
  /// both branches meet in the backward pass of what made them.
  void add(int node, const Twins& output) { outputs_[node] = output; }
  /// Returns `value`, the output of `node`, or its twin where that has been added and not yet taken.
  at::Tensor take(int node, const at::Tensor& value) {
    if (!outputs_[node].first.is_same(value)) return value;
    return std::exchange(outputs_[node], {}).second;
  }

  /// Says that the input of this lookup is its output already.
  void add_function(int lookup) { functions_[lookup] = true; }
  bool has_function(int lookup) const { return functions_[lookup]; }

  /// Keeps the output of a node that one convolution alone reads, which may make it again.
  void add_again(int node, const Twins& output) { made_again_[node] = output; }
  /// Lets the convolution of `node` that gave y do so.
  void forget_input(const Node& node, const at::Tensor& y) {
    const Twins x = std::exchange(made_again_[node.inputs[0]], {});
    if (!x.again || make_input_again(y, x.first, x.again) || !y.requires_grad()) return;
    throw promise_error("'" + node.name + "': multiplies another tensor than its input; leave qat.recompute out");
  }

 private:
  std::vector<Twins> outputs_;
  std::vector<bool> functions_;
  std::vector<Twins> made_again_;
};

class CudaQuantizers : public Quantizers {
 public:
  CudaQuantizers(const Prepared& prepared, const QuantizerOptions& options, at::Device device)
      : prepared_(prepared),
        options_(options),
        device_(device),
        edges_(nodes().size(), device),
        functions_(prepared, device) {
    group_layers();
    find_forks();
    weight_scales_ = at::empty({groups_.empty() ? 0 : groups_.back().first_scale + groups_.back().scales},
                               at::TensorOptions(device).dtype(at::kFloat));
    damaged_weights_ = at::zeros({static_cast<int64_t>(weighted_.size())}, at::TensorOptions(device).dtype(at::kInt));
  }

  at::Device device() const override { return device_; }
  WalkHooks quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) override;
  WalkHooks calibrating_hooks() override;
  void ranges_move() override { functions_.ranges_move(); }
  void upload(const EdgeState& edges) override;
  void download(EdgeState& edges) const override;
  void download_histograms(std::vector<Observer>& observers) const override;
  void require_finite() const override;

 private:
  const std::vector<Node>& nodes() const { return prepared_.graph.nodes; }
  void group_layers();
  void find_forks();
  void quantize(const LayerGroup& group, const Weights& weights, const at::Tensor& learned_scales, bool fold_batch_norm,
                std::vector<LayerParameters>& layers) const;
  at::Tensor quantized_edge(int node, const Unfinished& y, const LearnedEdge& learned, bool observe) const;
  at::Tensor normalized_edge(int node, const Unfinished& y, const BatchNormTensors& batch_norm, const Walk& walk,
                             Joined& joined) const;
  at::Tensor excited_edge(int node, const std::vector<at::Tensor>& inputs, Joined& joined) const;
  std::vector<QParams> ranges_now() const;

  const Prepared& prepared_;
  const QuantizerOptions options_;
  const at::Device device_;
  DeviceTable<kernels::EdgeQuantizer> edges_;  // by node; those of roots are used
  FunctionTables functions_;
  DeviceTable<kernels::EdgeHistogram> histograms_;  // by node, made by the first calibrating walk
  std::vector<int> weighted_;                       // conv2d and linear nodes
  std::vector<LayerGroup> groups_;                  // of all of them, in their order
  std::vector<size_t> group_of_;                    // by node
  std::vector<int> forks_;    // by node: the last reader if it has several and that a weight or two inputs to multiply
  std::vector<bool> again_;   // by node: one convolution alone reads it, and makes it again in the backward pass
  at::Tensor weight_scales_;  // float [channels of all layers], unless they learn
  at::Tensor damaged_weights_;  // int32, by weighted_
};

void CudaQuantizers::group_layers() {
  std::map<std::string, int64_t> sizes;
  for (const ParameterSpec& parameter : parameters(prepared_.graph)) {
    int64_t& size = sizes[parameter.name] = 1;
    for (const long extent : parameter.shape) size *= extent;
  }
  group_of_.resize(nodes().size());
  int64_t in_group = 0, scales = 0;
  for (int n = 0; n < static_cast<int>(nodes().size()); ++n) {
    const Node& node = nodes()[n];
    if (!has_weight(node.op)) continue;
    const int64_t size = sizes.at(node.name + ".weight");
    const int64_t room = groups_.size() == 1 ? kFirstLayers : kLayers;
    if (groups_.empty() || (options_.by_layer_groups && in_group + size > room)) {
      groups_.push_back({.first_weight = static_cast<int64_t>(weighted_.size()), .first_scale = scales});
      in_group = 0;
    }
    in_group += size;
    scales += node.out_channels;
    groups_.back().nodes.push_back(n);
    groups_.back().scales += node.out_channels;
    group_of_[n] = groups_.size() - 1;
    weighted_.push_back(n);
  }
}

void CudaQuantizers::find_forks() {
  const std::vector<int> readers = reader_counts(prepared_.graph);
  const std::vector<int> last = last_readers(prepared_.graph);
  for (size_t n = 0; n < nodes().size(); ++n) {
    const bool is_read = last[n] >= 0 && last[n] < static_cast<int>(nodes().size());
    const bool takes = is_read && (has_weight(nodes()[last[n]].op) || nodes()[last[n]].op == Op::mul);
    forks_.push_back(takes && readers[n] > 1 ? last[n] : -1);
  }
  again_ = options_.recompute ? can_be_made_again(prepared_.graph) : std::vector<bool>(nodes().size());
}

kernels::ObservedValues observed(const at::Tensor& flat, Activation activation) {
  return {flat.const_data_ptr(), flat.numel(), value_type(flat), clamp_of(activation)};
}

/// Sets the parameters of the group's layers in `layers`, by node.
void CudaQuantizers::quantize(const LayerGroup& group, const Weights& weights, const at::Tensor& learned_scales,
                              bool fold_batch_norm, std::vector<LayerParameters>& layers) const {
  std::vector<at::Tensor> all;
  std::vector<FixedBatchNorm> folded;
  WeightQuantizer quantizer;
  for (const int n : group.nodes) {
    const Node& node = nodes()[n];
    all.push_back(weights.at(node.name + ".weight"));
    quantizer.codes.push_back(prepared_.weight_codes(n));
    if (node.bias) layers[n].bias = weights.at(node.name + ".bias");
    layers[n].batch_norm_folded = fold_batch_norm && !node.batch_norm.empty();
    quantizer.has_gain.push_back(layers[n].batch_norm_folded);
    if (layers[n].batch_norm_folded) folded.push_back(fixed_batch_norm(weights, node, layers[n].bias));
  }
  const std::vector<GainAndBias> gains = gains_and_biases(folded);
  for (const GainAndBias& g : gains) quantizer.gains.push_back(g.gain);
  const bool mse = least_squares(options_.weights);
  quantizer.rules.rule = mse ? kernels::ScaleRule::least_squares : kernels::ScaleRule::reach;
  quantizer.rules.per_tensor = prepared_.spec.weight_granularity == Granularity::per_tensor;
  if (learned_scales.defined()) {
    quantizer.rules.rule = kernels::ScaleRule::given;
  }
  quantizer.scales =
      (learned_scales.defined() ? learned_scales : weight_scales_).narrow(0, group.first_scale, group.scales);
  quantizer.not_finite = damaged_weights_.narrow(0, group.first_weight, static_cast<int64_t>(group.nodes.size()));
  const std::vector<at::Tensor> quantized = cuda_quantize_weights(all, quantizer, autocast_type());
  const at::Tensor scales = quantizer.scales.detach();
  size_t next = 0;
  int64_t first = 0;
  for (size_t i = 0; i < quantized.size(); ++i) {
    LayerParameters& layer = layers[group.nodes[i]];
    layer.weight = quantized[i];
    layer.scale = scales.narrow(0, first, layer.weight.size(0));
    first += layer.weight.size(0);
    if (layer.batch_norm_folded) layer.bias = gains[next++].bias;
  }
}

at::Tensor CudaQuantizers::quantized_edge(int node, const Unfinished& y, const LearnedEdge& learned,
                                          bool observe) const {
  const at::Tensor value = dense(y.value);
  const Activation activation = nodes()[node].activation;
  TensorQuantizer quantizer{.device = &edges_.row(node)->qparams,
                            .learned = learned,
                            .activation = clamp_of(activation),
                            .in_place = y.owned && !value.is_view()};
  if (observe) {
    quantizer.observe = [this, node, activation](const at::Tensor& sum) {
      const c10::DeviceGuard guard(device_);
      kernels::cuda_observe(observed(sum, activation), edges_.row(node), current_stream(device_));
    };
  }
  return cuda_fake_quantize(value, y.bias, y.residual, quantizer);
}

at::Tensor CudaQuantizers::normalized_edge(int node, const Unfinished& y, const BatchNormTensors& batch_norm,
                                           const Walk& walk, Joined& joined) const {
  const Node& of = nodes()[node];
  const int lookup = walk.joins_nodes && !walk.observe ? functions_.lookup_of(node) : -1;
  Unfinished sum = y;
  if (y.residual.defined() && forks_[of.inputs[1]] == node) sum.residual = joined.take(of.inputs[1], y.residual);
  const Twins twins = cuda_norm_quantize(sum, batch_norm,
                                         {.edge = edges_.row(node),
                                          .observe = walk.observe,
                                          .activation = clamp_of(of.activation),
                                          .epsilon = of.epsilon,
                                          .function = lookup >= 0 ? functions_.of(node) : nullptr});
  const int last = lookup >= 0 ? lookup : node;
  if (lookup >= 0) joined.add_function(lookup);
  if (forks_[last] >= 0) joined.add(last, twins);
  if (again_[last]) joined.add_again(last, twins);
  return twins.first;
}

at::Tensor CudaQuantizers::excited_edge(int node, const std::vector<at::Tensor>& inputs, Joined& joined) const {
  const int large = inputs[0].numel() >= inputs[1].numel() ? 0 : 1, from = nodes()[node].inputs[large];
  const at::Tensor &x = inputs[large], &factor = inputs[1 - large];
  if (!excite_fits(x, factor)) return {};
  const ExciteQuantizer quantizer{.device = &edges_.row(node)->qparams,
                                  .activation = clamp_of(nodes()[node].activation)};
  const at::Tensor y = cuda_excite_quantize(forks_[from] == node ? joined.take(from, x) : x, factor, quantizer);
  if (again_[node]) {
    joined.add_again(node, {y, {}, [x = x.detach(), factor = factor.detach(), quantizer] {
                              return cuda_excite_quantize(x, factor, quantizer);
                            }});
  }
  return y;
}

std::vector<QParams> CudaQuantizers::ranges_now() const {
  std::vector<QParams> qparams;
  for (const kernels::EdgeQuantizer& row : edges_.read()) qparams.push_back(row.qparams);
  return qparams;
}

WalkHooks CudaQuantizers::quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) {
  if (walk.observe && walk.shares != nullptr)
    throw usage_error("quant.scales: observed over several processes' images is the CPU's; take fixed or lsq");
  WalkHooks hooks;
  hooks.parameters = [this, &weights, learned = learned.weights, fold = walk.fold_batch_norm,
                      layers = std::make_shared<std::vector<LayerParameters>>(nodes().size())](int node,
                                                                                               const LayerParameters&) {
    if (!(*layers)[node].weight.defined()) quantize(groups_[group_of_[node]], weights, learned, fold, *layers);
    return (*layers)[node];
  };
  const std::vector<LearnedEdge> ranges = learned_edges(learned.edges, learned.offsets, options_.edges, nodes().size());
  const auto joined = std::make_shared<Joined>(nodes().size());
  hooks.finish = [this, walk, ranges, joined](int node, const Unfinished& y) {
    if (nodes()[node].op == Op::conv2d) joined->forget_input(nodes()[node], y.value);
    if (!prepared_.has_edge(node)) return finished(y, nodes()[node].activation);
    return quantized_edge(node, y, ranges[node], walk.observe);
  };
  if (walk.observe) functions_.ranges_move();
  const bool reads_functions = walk.joins_nodes && !walk.observe && !walk.fold_batch_norm && !ranges[0].defined();
  if (reads_functions) functions_.refresh([this] { return ranges_now(); });
  hooks.normalize = [this, walk, ranges, joined](int node, const Unfinished& y, const BatchNormTensors& batch_norm) {
    if (nodes()[node].op == Op::conv2d) joined->forget_input(nodes()[node], y.value);
    if (!prepared_.has_edge(node) || ranges[node].defined() || !norm_quantize_fits(y)) return at::Tensor();
    return normalized_edge(node, y, batch_norm, walk, *joined);
  };
  if (walk.joins_nodes && !walk.observe) {
    hooks.operate = [this, ranges, joined](int node, const std::vector<at::Tensor>& inputs) {
      if (joined->has_function(node)) return inputs[0];
      if (nodes()[node].op != Op::mul || !prepared_.has_edge(node) || ranges[node].defined()) return at::Tensor();
      return excited_edge(node, inputs, *joined);
    };
  }
  hooks.input = [this, joined](int node, const at::Tensor& x) {
    const int from = nodes()[node].inputs[0];
    return forks_[from] == node ? joined->take(from, x) : x;
  };
  hooks.output = [this, walk, ranges](int node, at::Tensor y) {
    const bool is_input = node == 0;  // which the walk does not finish
    return is_input && prepared_.has_edge(0) ? quantized_edge(0, {.value = y}, ranges[0], walk.observe) : y;
  };
  return hooks;
}

WalkHooks CudaQuantizers::calibrating_hooks() {
  if (!histograms_.defined()) {
    histograms_ = {nodes().size(), device_};
    histograms_.write(std::vector<kernels::EdgeHistogram>(nodes().size()));
  }
  WalkHooks hooks;
  hooks.output = [this](int node, at::Tensor y) {
    if (prepared_.has_edge(node)) {
      const at::Tensor flat = dense(y.detach());
      const c10::DeviceGuard guard(device_);
      kernels::cuda_count(observed(flat, Activation::none), histograms_.row(node), current_stream(device_));
    }
    return y;
  };
  return hooks;
}

void CudaQuantizers::upload(const EdgeState& edges) {
  std::vector<kernels::EdgeQuantizer> rows(nodes().size());
  for (size_t n = 0; n < rows.size(); ++n) {
    const Statistics& s = edges.observers[n].statistics();
    rows[n].qparams = edges.qparams[n];
    rows[n].affine = prepared_.affine[n] ? 1 : 0;
    rows[n].range = {s.lo, s.hi, s.seen};
    rows[n].averaging = edges.observers[n].averaging();
  }
  functions_.set(edges.qparams);
  edges_.write(std::move(rows));
  damaged_weights_.zero_();
}

void CudaQuantizers::download(EdgeState& edges) const {
  const std::vector<kernels::EdgeQuantizer> rows = edges_.read();
  for (size_t n = 0; n < rows.size(); ++n) {
    edges.qparams[n] = rows[prepared_.root[n]].qparams;
    Statistics s = edges.observers[n].statistics();  // a histogram, if there is one, was not touched
    s.lo = rows[n].range.lo;
    s.hi = rows[n].range.hi;
    s.seen = rows[n].range.seen;
    edges.observers[n].restore(s);
  }
}

void CudaQuantizers::download_histograms(std::vector<Observer>& observers) const {
  if (!histograms_.defined()) return;
  const std::vector<kernels::EdgeHistogram> rows = histograms_.read();
  for (int n = 0; n < static_cast<int>(rows.size()); ++n) {
    const kernels::EdgeHistogram& h = rows[n];
    if (h.not_finite != 0) refuse(nodes()[n], "a value is NaN, infinite or beyond 1e30");
    if (h.range.seen == 0) continue;
    observers[n].restore({.lo = h.range.lo,
                          .hi = h.range.hi,
                          .seen = h.range.seen,
                          .histogram = std::vector<double>(h.counts, h.counts + kernels::kEdgeBins),
                          .histogram_lo = static_cast<float>(h.bins.first) * h.bins.width,
                          .histogram_hi = static_cast<float>(h.bins.first + h.bins.count) * h.bins.width});
  }
}

void CudaQuantizers::require_finite() const {
  const at::Tensor damaged = damaged_weights_.cpu();
  for (size_t i = 0; i < weighted_.size(); ++i)
    if (damaged.const_data_ptr<int32_t>()[i] != 0) refuse(nodes()[weighted_[i]], "a weight is NaN or infinite");
  const std::vector<kernels::EdgeQuantizer> rows = edges_.read();
  for (size_t n = 0; n < rows.size(); ++n)
    if (rows[n].not_finite != 0) refuse(nodes()[n], "a value is NaN, infinite or beyond 1e30");
}

}  // namespace

std::unique_ptr<Quantizers> make_cuda_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                                 at::Device device) {
  return std::make_unique<CudaQuantizers>(prepared, options, device);
}

}  // namespace octet
