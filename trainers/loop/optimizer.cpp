// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <exception>

#include "kernels/training/observe.h"

namespace octet {
namespace {

constexpr double kAdamEps = 1e-8;
constexpr double kMaxChange = 0.1;  // share of a scale by which one step may change it

}  // namespace

bool decays(ParameterSpec::Kind kind) {
  return kind == ParameterSpec::Kind::conv_weight || kind == ParameterSpec::Kind::linear_weight;
}

Optimizer::Optimizer(const OptimizerRecipe& recipe, const Graph& graph, const Weights& weights, const Weights& scales)
    : recipe_(recipe), adamw_(recipe.optimizer == OptimizerKind::adamw) {
  for (const ParameterSpec& spec : octet::parameters(graph)) {
    if (!spec.trainable()) continue;
    add(spec.name, weights.at(spec.name), decays(spec.kind) ? Group::decaying : Group::other);
  }
  for (const auto& [name, value] : scales) add(name, value, name.ends_with("offset") ? Group::offsets : Group::scales);
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
  step_group(Group::scales, learning_rates.scales, skip);
  step_group(Group::offsets, learning_rates.scales, skip);
}

void Optimizer::step_group(Group group, const at::Tensor& learning_rate, const at::Tensor& skip) {
  // The fused operators walk raw memory, so parameter, gradient and state must have one memory format. AccumulateGrad
  // guarantees that for gradients (its "gradient layout contract"), the constructor for the state.
  std::vector<at::Tensor> values, gradients, first, second;
  for (const Parameter& parameter : parameters_) {
    if (parameter.group != group || !parameter.value.grad().defined()) continue;
    values.push_back(parameter.value);
    gradients.push_back(parameter.value.grad());
    first.push_back(parameter.first);
    if (adamw_) second.push_back(parameter.second);
  }
  if (values.empty()) return;
  const double weight_decay = group == Group::decaying ? recipe_.weight_decay : 0.0;
  const bool positive = group == Group::scales;
  std::vector<at::Tensor> minima, maxima;  // bounds of positive parameters after this step
  if (positive) {
    minima = at::_foreach_mul(values, 1 - kMaxChange);
    maxima = at::_foreach_mul(values, 1 + kMaxChange);
    at::_foreach_clamp_min_(minima, kSmallestScale);
  }
  std::vector<at::Tensor> changed = values;
  const bool relative = adamw_ && positive;
  if (relative) {
    at::_foreach_mul_(gradients, values);
    changed = at::_foreach_zero(values);
  }
  if (adamw_) {
    const std::vector<at::Tensor> steps(values.size(), steps_);
    at::_fused_adamw_(changed, gradients, first, second, {}, steps, learning_rate, recipe_.beta1, recipe_.beta2,
                      weight_decay, kAdamEps, /*amsgrad=*/false, /*maximize=*/false, {}, skip);
  } else {
    // A momentum buffer of zeros makes the first step like every other one.
    at::_fused_sgd_(values, gradients, first, weight_decay, recipe_.momentum, learning_rate, /*dampening=*/0.0,
                    recipe_.nesterov, /*maximize=*/false, /*is_first_step=*/false, {}, skip);
  }
  if (relative) {
    at::_foreach_add_(changed, 1);
    at::_foreach_mul_(values, changed);
  }
  if (positive) {
    at::_foreach_clamp_min_(values, minima);
    at::_foreach_clamp_max_(values, maxima);
  }
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

WeightAverage::WeightAverage(const Weights& weights, double decay, double ramp)
    : weights_(weights), average_(copies_of(weights)), decay_(decay), ramp_(ramp) {}

double WeightAverage::rate(long t) const {
  if (ramp_ > 0) return 1.0 - decay_ * -std::expm1(-static_cast<double>(t + 1) / ramp_);
  return 1.0 - std::min(decay_, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
}

void WeightAverage::update(const at::Tensor& rate) {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> averages, weights;
  for (auto& [name, average] : average_) {
    averages.push_back(average);
    weights.push_back(weights_.at(name));
  }
  std::vector<at::Tensor> difference = at::_foreach_sub(weights, averages);
  at::_foreach_mul_(difference, rate);
  at::_foreach_add_(averages, difference);
}

void WeightAverage::apply() {
  c10::NoGradGuard no_grad;
  for (auto& [name, average] : average_) weights_.at(name).copy_(average);
}

void WeightAverage::while_in_place(const std::function<void()>& body) {
  exchange();
  try {
    body();
  } catch (...) {
    try {
      exchange();
    } catch (const std::exception&) {  // the exception of `body` is the one to report
    }
    throw;
  }
  exchange();
}

void WeightAverage::exchange() {
  c10::NoGradGuard no_grad;
  for (auto& [name, average] : average_) {
    at::Tensor& weight = weights_.at(name);
    const at::Tensor held = weight.detach().clone();
    weight.copy_(average);
    average.copy_(held);
  }
}

}  // namespace octet
