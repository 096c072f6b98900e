// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/learned_codes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <numbers>

#include "src/base/error.h"
#include "src/quant/equalize.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"

namespace octet {

at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature) {
  const at::Tensor student = at::log_softmax(logits.to(at::kFloat) / temperature, 1);
  const at::Tensor teacher = at::log_softmax(taught.to(at::kFloat) / temperature, 1);
  return (teacher.exp() * (teacher - student)).sum(1).mean() * (temperature * temperature);
}

namespace {

constexpr double kWarmUp = 0.05, kGainRate = 0.1;

double rate_at(int step, int steps) {
  const double rise = std::min(1.0, (step + 1) / (kWarmUp * steps + 1));
  return rise * 0.5 * (1 + std::cos(std::numbers::pi * step / steps));
}

struct ChangedLayer {
  const Node& node;
  FoldedLayer folded;
  MovingCodes codes;
  at::Tensor first_codes;
  at::Tensor shift;  ///< added to the bias; undefined: the layer has none
};

class Distillation {
 public:
  Distillation(QuantizedModel& model, const Weights& floats, const DistillPlan& plan)
      : model_(model),
        graph_(model.prepared().graph),
        floats_(floats),
        plan_(plan),
        place_(graph_.nodes.size(), -1),
        layers_(layers()),
        codes_(of_layers([](const ChangedLayer& layer) { return layer.codes.latent(); })),
        gains_(of_layers([](const ChangedLayer& layer) { return layer.codes.gain(); })),
        shifts_(of_layers([](const ChangedLayer& layer) { return layer.shift; })),
        rate_(learning_rate(0, device())),
        gain_rate_(learning_rate(0, device())),
        loss_(at::zeros({}, at::TensorOptions(device()).dtype(at::kFloat))),
        deployed_(model.quantizing_hooks({})),
        recorded_(/*capture=*/device().is_cuda()) {}

  void set(double rate) {
    rate_.fill_(rate * plan_.rate);
    gain_rate_.fill_(rate * plan_.rate * kGainRate);
  }

  void step(const at::Tensor& images) {
    if (!x_.defined()) x_ = at::zeros_like(images, images.options(), at::MemoryFormat::Contiguous);
    x_.copy_(images);
    recorded_.run(0, [&] { launch(); });
  }

  at::Tensor& loss() { return loss_; }  ///< sum of the steps since it was zeroed

  /// Writes weights and biases into the model.
  void keep(Distilled& result) const {
    for (const ChangedLayer& layer : layers_) {
      model_.weights().at(layer.node.name + ".weight").copy_(layer.codes.weight());
      if (layer.shift.defined()) model_.weights().at(bias_name(layer.node)).add_(layer.shift);
      result.weights += layer.first_codes.numel();
      result.moved += layer.codes.latent().round().ne(layer.first_codes).sum().item<int64_t>();
    }
  }

 private:
  at::Device device() const { return device_of(model_.weights()); }

  std::vector<ChangedLayer> layers() {
    const Prepared& prepared = model_.prepared();
    const FloatParams scales = model_.weight_scales();
    const bool per_tensor = prepared.spec.weight_granularity == Granularity::per_tensor;
    std::vector<ChangedLayer> layers;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const Node& node = graph_.nodes[n];
      if (!has_weight(node.op)) continue;
      place_[n] = static_cast<int>(layers.size());
      const std::string name = node.name + ".weight";
      MovingCodes codes(model_.weights().at(name), floats_.at(name), scales.at(node.name), prepared.weight_codes(n),
                        per_tensor);
      const std::string bias = bias_name(node);
      layers.push_back({node, FoldedLayer(node, model_.weights()), codes, codes.latent().round(),
                        bias.empty() ? at::Tensor() : at::zeros_like(model_.weights().at(bias))});
    }
    last_ = layers.back().folded.with(layers.back().codes.weight());
    layers.pop_back();
    return layers;
  }

  /// Returns f(layer) for every layer, without undefined tensors.
  template <class F>
  std::vector<at::Tensor> of_layers(const F& f) const {
    std::vector<at::Tensor> all;
    for (const ChangedLayer& layer : layers_)
      if (const at::Tensor tensor = f(layer); tensor.defined()) all.push_back(tensor);
    return all;
  }

  at::Tensor logits(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& shifts) const {
    WalkHooks hooks = deployed_;
    hooks.parameters = [&, next = size_t{0}](int n, const LayerParameters&) mutable {
      if (place_[n] == static_cast<int>(layers_.size())) return last_;
      const ChangedLayer& layer = layers_[place_[n]];
      LayerParameters parameters = layer.folded.with(weights[place_[n]]);
      if (layer.shift.defined()) parameters.bias = parameters.bias + shifts[next++];
      return parameters;
    };
    return walk(graph_, model_.weights(), x_, {}, hooks);
  }

  void launch() {
    const at::Tensor taught = walk(graph_, floats_, x_, {});
    const std::vector<at::Tensor> weights =
        of_layers([](const ChangedLayer& layer) { return layer.codes.weight().requires_grad_(true); });
    const std::vector<at::Tensor> shifts = of_layers([](const ChangedLayer& layer) {
      return layer.shift.defined() ? layer.shift.detach().requires_grad_(true) : layer.shift;
    });
    std::vector<at::Tensor> leaves = weights;
    leaves.insert(leaves.end(), shifts.begin(), shifts.end());
    std::vector<at::Tensor> gradients;
    {
      const c10::AutoGradMode on(true);
      const at::Tensor loss = distillation_loss(logits(weights, shifts), taught, plan_.temperature);
      gradients = torch::autograd::grad({loss}, leaves);
      loss_.add_(loss.detach());
    }
    std::vector<at::Tensor> by_codes, by_gains;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const MovingCodes::Gradients of = layers_[i].codes.gradients(gradients[i], weights[i].detach());
      by_codes.push_back(of.latent);
      by_gains.push_back(of.gain);
    }
    codes_.step(by_codes, rate_);
    gains_.step(by_gains, gain_rate_);
    shifts_.step({gradients.begin() + static_cast<int64_t>(layers_.size()), gradients.end()}, rate_);
    for (ChangedLayer& layer : layers_) layer.codes.hold();
  }

  QuantizedModel& model_;
  const Graph& graph_;
  const Weights& floats_;
  const DistillPlan& plan_;
  std::vector<int> place_;  // by node
  LayerParameters last_;
  std::vector<ChangedLayer> layers_;  // all but the last
  Adam codes_, gains_, shifts_;
  at::Tensor rate_, gain_rate_, loss_, x_;
  const WalkHooks deployed_;
  StepGraph recorded_;
};

}  // namespace

void require_teachable(const Graph& fused) {
  if (fused.outputs.size() != 1)
    throw usage_error(
        fmt::format("calibrate.distill_steps: the float network teaches the logits of one output, and this network has "
                    "{}; leave it out",
                    fused.outputs.size()));
  const auto layers =
      std::count_if(fused.nodes.begin(), fused.nodes.end(), [](const Node& n) { return has_weight(n.op); });
  if (layers < 2)
    throw usage_error(
        "calibrate.distill_steps: all layers but the last learn, and this network has no other; leave it out");
}

Distilled distill(QuantizedModel& model, const Weights& floats, const std::function<at::Tensor()>& next,
                  const DistillPlan& plan) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const SameConvolutions same;
  const TensorFloat32 products(plan.tf32);
  require_teachable(model.prepared().graph);
  Distillation distillation(model, floats, plan);
  const int tenth = std::max(1, plan.steps / 10);
  Distilled result;
  for (int step = 0; step < plan.steps; ++step) {
    if (step == plan.steps - tenth) distillation.loss().zero_();
    distillation.set(rate_at(step, plan.steps));
    distillation.step(next());
    if (step + 1 == tenth) result.first = distillation.loss().item<double>() / tenth;
  }
  result.last = distillation.loss().item<double>() / tenth;
  distillation.keep(result);
  return result;
}

}  // namespace octet
