#include "trainers/loop/optimizer.h"

#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "kernels/observe/edge_quantizer.h"
#include "src/recipe/choices.h"

namespace octet {
namespace {

constexpr double kAdamEps = 1e-8;
constexpr double kMostShrinking = 0.5;  // of a scale or clipping level in one step

}  // namespace

bool decays(ParameterSpec::Kind kind) {
  return kind == ParameterSpec::Kind::conv_weight || kind == ParameterSpec::Kind::linear_weight;
}

Optimizer::Optimizer(const OptimizerRecipe& recipe, const Graph& graph, const Weights& weights, const Weights& scales,
                     double alpha_decay)
    : recipe_(recipe),
      alpha_decay_(alpha_decay),
      adamw_(value_named(kOptimizers, recipe.optimizer, "optimizer") == OptimizerKind::adamw) {
  for (const ParameterSpec& spec : octet::parameters(graph)) {
    if (!spec.trainable()) continue;
    add(spec.name, weights.at(spec.name), decays(spec.kind) ? Group::decaying : Group::other);
  }
  for (const auto& [name, value] : scales)
    add(name, value,
        name.ends_with("alpha")    ? Group::alphas
        : name.ends_with("offset") ? Group::offsets
                                   : Group::scales);
  if (adamw_) steps_ = at::zeros({}, parameters_.front().first.options());
}

void Optimizer::add(const std::string& name, const at::Tensor& value, Group group) {
  const at::Tensor plain = value.detach();
  parameters_.push_back({name, value, at::zeros_like(plain), adamw_ ? at::zeros_like(plain) : at::Tensor(), group});
}

void Optimizer::step(const Rates& learning_rates, const at::Tensor& skip) {
  c10::NoGradGuard no_grad;
  if (adamw_) steps_.add_(at::rsub(skip, 1));  // a skipped step does not count
  step_group(Group::decaying, learning_rates.weights, skip);
  step_group(Group::other, learning_rates.weights, skip);
  for (const Group group : {Group::scales, Group::alphas, Group::offsets})
    step_group(group, learning_rates.scales, skip);
}

double Optimizer::decay_of(Group group) const {
  if (group == Group::decaying) return recipe_.weight_decay;
  return group == Group::alphas ? alpha_decay_ : 0.0;
}

void Optimizer::step_group(Group group, const at::Tensor& learning_rate, const at::Tensor& skip) {
  // The fused operators walk raw memory: parameter, gradient and state share one memory format. AccumulateGrad
  // guarantees it for gradients (its "gradient layout contract"), the constructor for the state.
  std::vector<at::Tensor> values, gradients, first, second;
  for (const Parameter& parameter : parameters_) {
    if (parameter.group != group || !parameter.value.grad().defined()) continue;
    values.push_back(parameter.value);
    gradients.push_back(parameter.value.grad());
    first.push_back(parameter.first);
    if (adamw_) second.push_back(parameter.second);
  }
  if (values.empty()) return;
  const double weight_decay = decay_of(group);
  const bool positive = group == Group::scales || group == Group::alphas;
  std::vector<at::Tensor> least;  // of positive ones after this step
  if (positive) {
    least = at::_foreach_mul(values, kMostShrinking);
    at::_foreach_clamp_min_(least, kSmallestScale);
  }
  if (adamw_) {
    const std::vector<at::Tensor> steps(values.size(), steps_);
    at::_fused_adamw_(values, gradients, first, second, {}, steps, learning_rate, recipe_.beta1, recipe_.beta2,
                      weight_decay, kAdamEps, /*amsgrad=*/false, /*maximize=*/false, {}, skip);
  } else {
    // A momentum buffer of zeros makes the first step like every other one.
    at::_fused_sgd_(values, gradients, first, weight_decay, recipe_.momentum, learning_rate, /*dampening=*/0.0,
                    recipe_.nesterov, /*maximize=*/false, /*is_first_step=*/false, {}, skip);
  }
  if (positive) at::_foreach_clamp_min_(values, least);
}

std::vector<at::Tensor> Optimizer::parameters() const {
  std::vector<at::Tensor> scales, values;
  for (const Parameter& parameter : parameters_) {
    const bool of_network = parameter.group == Group::decaying || parameter.group == Group::other;
    (of_network ? values : scales).push_back(parameter.value);
  }
  scales.insert(scales.end(), values.begin(), values.end());
  return scales;
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const Parameter& parameter : parameters_) {
    if (parameter.value.grad().defined()) gradients.push_back(parameter.value.grad());
  }
  return gradients;
}

void Optimizer::zero_gradients() {
  for (Parameter& parameter : parameters_) parameter.value.mutable_grad() = at::Tensor();
}

NamedTensors Optimizer::state() const {
  NamedTensors state;
  for (const Parameter& parameter : parameters_) {
    state[(adamw_ ? "mean." : "momentum.") + parameter.name] = parameter.first;
    if (adamw_) state["square." + parameter.name] = parameter.second;
  }
  if (adamw_) state["step"] = steps_;
  return state;
}

}  // namespace octet
