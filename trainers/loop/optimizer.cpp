#include "trainers/loop/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include "src/common/error.h"

namespace octet {
namespace {

constexpr double kAdamEps = 1e-8;

}  // namespace

bool decays(ParameterSpec::Kind kind) {
  return kind == ParameterSpec::Kind::conv_weight || kind == ParameterSpec::Kind::linear_weight;
}

Optimizer::Optimizer(const OptimizerRecipe& recipe, const Graph& graph, const Weights& weights)
    : recipe_(recipe), adamw_(recipe.optimizer == "adamw") {
  if (!adamw_ && recipe.optimizer != "sgd") {
    throw usage_error(fmt::format("optimizer: '{}' is none of sgd, adamw", recipe.optimizer));
  }
  for (const ParameterSpec& spec : octet::parameters(graph)) {
    if (!spec.trainable()) continue;
    Parameter parameter{spec.name, weights.at(spec.name), {}, {}, decays(spec.kind)};
    const at::Tensor plain = parameter.value.detach();
    parameter.first = at::zeros_like(plain);
    if (adamw_) parameter.second = at::zeros_like(plain);
    parameters_.push_back(std::move(parameter));
  }
  if (adamw_) steps_ = at::zeros({}, parameters_.front().first.options());
}

void Optimizer::step(const at::Tensor& learning_rate, const at::Tensor& skip) {
  c10::NoGradGuard no_grad;
  if (adamw_) steps_.add_(at::rsub(skip, 1));  // a skipped step does not count
  step_group(true, learning_rate, skip);
  step_group(false, learning_rate, skip);
}

void Optimizer::step_group(bool decay, const at::Tensor& learning_rate, const at::Tensor& skip) {
  // The fused operators walk raw memory: parameter, gradient and state share one memory format. AccumulateGrad
  // guarantees it for gradients (its "gradient layout contract"), the constructor for the state.
  std::vector<at::Tensor> values, gradients, first, second;
  for (const Parameter& parameter : parameters_) {
    if (parameter.decay != decay || !parameter.value.grad().defined()) continue;
    values.push_back(parameter.value);
    gradients.push_back(parameter.value.grad());
    first.push_back(parameter.first);
    if (adamw_) second.push_back(parameter.second);
  }
  if (values.empty()) return;
  const double weight_decay = decay ? recipe_.weight_decay : 0.0;
  if (adamw_) {
    const std::vector<at::Tensor> steps(values.size(), steps_);
    at::_fused_adamw_(values, gradients, first, second, {}, steps, learning_rate, recipe_.beta1, recipe_.beta2,
                      weight_decay, kAdamEps, /*amsgrad=*/false, /*maximize=*/false, {}, skip);
  } else {
    // A momentum buffer of zeros makes the first step like every other one.
    at::_fused_sgd_(values, gradients, first, weight_decay, recipe_.momentum, learning_rate, /*dampening=*/0.0,
                    recipe_.nesterov, /*maximize=*/false, /*is_first_step=*/false, {}, skip);
  }
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
