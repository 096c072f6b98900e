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
#include <fmt/core.h>

#include <exception>
#include <numbers>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/base/random.h"

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

namespace {

constexpr double kOneCycleStart = 1.0 / 25;  // of the peak
constexpr double kOneCycleWarmupShare = 0.3;
constexpr double kYoloxLowest = 1.0 / 20;  // of the peak

}  // namespace

long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase) {
  const long steps = static_cast<long>(images) / recipe.batch_size;
  if (steps == 0) {
    throw usage_error(fmt::format("{}: batch_size {} is more than the {} training images; use a smaller batch", phase,
                                  recipe.batch_size, images));
  }
  return steps;
}

uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step) {
  uint64_t mixed = split_mix(seed);
  for (const char letter : phase) mixed = split_mix(mixed ^ static_cast<uint64_t>(letter));
  mixed = split_mix(mixed ^ static_cast<uint64_t>(epoch));
  return split_mix(mixed ^ static_cast<uint64_t>(step));
}

Schedule make_schedule(const OptimizerRecipe& recipe, long steps_per_epoch, int last_epochs) {
  Schedule schedule;
  schedule.kind = recipe.schedule;
  schedule.peak = recipe.learning_rate;
  schedule.steps = std::max(1L, recipe.epochs * steps_per_epoch);
  schedule.warmup = std::lround(recipe.warmup_epochs * static_cast<double>(steps_per_epoch));
  schedule.gamma = recipe.gamma;
  for (int epoch : recipe.milestones) schedule.milestones.push_back(epoch * steps_per_epoch);
  if (schedule.kind == ScheduleKind::one_cycle && schedule.warmup == 0) {
    schedule.warmup = std::lround(kOneCycleWarmupShare * static_cast<double>(schedule.steps));
  }
  const bool ends = schedule.kind == ScheduleKind::yolox && last_epochs < recipe.epochs;
  if (ends) schedule.last = last_epochs * steps_per_epoch;
  if (schedule.warmup >= schedule.steps - schedule.last && schedule.warmup > 0) {
    throw usage_error(fmt::format("warmup_epochs: {} leaves nothing of {} epochs{}; use fewer", recipe.warmup_epochs,
                                  recipe.epochs,
                                  ends ? fmt::format(" without the last {} (data.mosaic_off)", last_epochs) : ""));
  }
  return schedule;
}

double learning_rate(const Schedule& schedule, long step) {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup);
  const auto steps = static_cast<double>(schedule.steps);
  const bool one_cycle = schedule.kind == ScheduleKind::one_cycle;
  if (step < schedule.warmup) {
    if (schedule.kind == ScheduleKind::yolox) return schedule.peak * (s / warmup) * (s / warmup);
    if (one_cycle) return schedule.peak * (kOneCycleStart + (1 - kOneCycleStart) * s / warmup);
    return schedule.peak * (s + 1) / warmup;
  }
  const double done = (s - warmup) / (steps - warmup);
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return schedule.peak;
    case ScheduleKind::step: {
      const auto passed = std::count_if(schedule.milestones.begin(), schedule.milestones.end(),
                                        [&](long milestone) { return milestone <= step; });
      return schedule.peak * std::pow(schedule.gamma, static_cast<double>(passed));
    }
    case ScheduleKind::cosine:
      return schedule.peak / 2 * (1 + std::cos(std::numbers::pi * done));
    case ScheduleKind::yolox: {
      const double low = kYoloxLowest * schedule.peak, all = steps - static_cast<double>(schedule.last) - warmup;
      return low + (schedule.peak - low) / 2 * (1 + std::cos(std::numbers::pi * std::min(1.0, (s - warmup) / all)));
    }
    case ScheduleKind::one_cycle:
      return schedule.peak * (1 - done);
  }
  throw usage_error("schedule: unknown kind");
}

}  // namespace octet
