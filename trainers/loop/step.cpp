// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "src/train/qat/quantized_model.h"
#include "trainers/loop/training_state.h"

namespace octet {
namespace {

constexpr double kPrunedDecay = 2e-4;  // lambda of SR-STE (src/train/qat/quantized_model.h)

/// Sets the memory format of all weights in place, so that models that share the tensors see it.
Weights& laid_out(const Phase& phase) {
  for (auto& [name, tensor] : *phase.weights) {
    if (tensor.dim() != 4) continue;
    const auto format = phase.recipe->channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    tensor.set_data(tensor.detach().contiguous(format));
  }
  return *phase.weights;
}

/// Returns all tensors that the moving average follows.
Weights with_scales(const Phase& phase) {
  Weights all = *phase.weights;
  all.merge(phase.learned_scales());
  return all;
}

}  // namespace

TrainStep::TrainStep(const Phase& phase)
    : phase_(phase),
      recipe_(*phase.recipe),
      device_(phase.device()),
      precision_(recipe_.precision),
      gather_(phase.ranks == nullptr ? GatherShares()
                                     : [&ranks = *phase.ranks](const at::Tensor& mine) { return ranks.gather(mine); }),
      optimizer_(recipe_, *phase.graph, laid_out(phase), phase.learned_scales()) {
  for (const ParameterSpec& parameter : parameters(*phase.graph))
    if (!parameter.trainable()) statistics_.push_back(phase.weights->at(parameter.name));
  if (recipe_.ema > 0) average_.emplace(with_scales(phase), recipe_.ema, recipe_.ema_ramp);
  if (precision_ == Precision::fp16) scaler_.emplace(device_);
  if (!phase.parallel.stages.empty()) {
    start_stages();
  } else if (phase.ranks != nullptr)
    exchange_.emplace(*phase.ranks, optimizer_.parameters(), phase.parallel.exchange);
  totals_ = at::zeros({StepTotals::kSums}, at::TensorOptions(device_).dtype(at::kDouble));
  // The fused optimizers read a double on the CPU and a float on the GPU.
  scalars_ = at::zeros({3}, at::TensorOptions(device_).dtype(device_.is_cpu() ? at::kDouble : at::kFloat));
}

void TrainStep::set(double learning_rate, long step) {
  scalars_[0].fill_(learning_rate);  // the values are sent as arguments of small kernels
  if (average_) scalars_[1].fill_(average_->rate(step));
  scalars_[2].fill_(learning_rate * phase_.scale_rate);
}

void TrainStep::begin_epoch(const StepTotals& totals) {
  totals_[0].fill_(totals.loss_sum);
  totals_[1].fill_(totals.correct);
  totals_[2].fill_(totals.cross_entropy_sum);
}

void TrainStep::launch(const at::Tensor& images, const at::Tensor& labels, const Mode& mode) {
  optimizer_.zero_gradients();
  const at::Tensor x = recipe_.channels_last ? images : images.contiguous();
  at::Tensor sums = staged_ ? staged_pass(x, labels, mode) : pass(x, labels, mode);
  const at::Tensor skip = finish_gradients(sums);
  if (phase_.quantized != nullptr) {
    const c10::NoGradGuard no_grad;
    decay_pruned(phase_.quantized->prepared(), *phase_.weights, kPrunedDecay);
  }
  optimizer_.step({.weights = scalars_[0], .scales = scalars_[2]}, skip);
  if (phase_.quantized != nullptr) phase_.quantized->hold_zero_points();
  if (average_) average_->update(scalars_[1]);
}

/// Runs the forward and the backward pass. Returns the step's sums over all ranks.
at::Tensor TrainStep::pass(const at::Tensor& x, const at::Tensor& labels, const Mode& mode) {
  LossAndSums step;
  {
    const Autocast autocast(device_.type(), precision_);
    step = loss_of(forward(x, mode), labels, x, mode);
  }
  if (exchange_) {
    const double share = 1.0 / phase_.ranks->size();
    step.loss = step.loss.div(phase_.ranks->size());  // the ranks' gradients add up to the batch's
    step.sums[0].mul_(share);
    step.sums[2].mul_(share);
    begin_exchange({step.sums}, share, mode);
  }
  scaled(step.loss).backward();
  if (exchange_) finish_exchange();
  return step.sums;
}

TrainStep::LossAndSums TrainStep::loss_of(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& images,
                                          const Mode& mode) const {
  const Objective& objective = phase_.objective ? *phase_.objective : class_objective();
  Objective::Whole whole{.box_l1 = mode.box_l1};
  if (images.defined()) whole.input = {static_cast<int>(images.size(2)), static_cast<int>(images.size(3))};
  if (gather_ && !staged_) whole.shares = &gather_;
  const Objective::Judged judged = objective.judge(logits, labels, recipe_.label_smoothing, whole);
  at::Tensor loss = judged.loss;
  if (phase_.teacher != nullptr) loss = phase_.teacher->join(loss, logits, images, objective, whole);
  const c10::NoGradGuard no_grad;
  return {loss, at::stack({loss.detach().to(at::kDouble), judged.right, judged.plain.to(at::kDouble)})};
}

QuantizedModel::Mode TrainStep::quantized_mode(const Mode& mode) const {
  const GatherShares* const shares = gather_ ? &gather_ : nullptr;
  return {.training = true,
          .batch_norm_training = mode.batch_norm_training,
          .observe = mode.observe,
          .quantize = true,
          .batch_norm_shares = recipe_.sync_batch_norm ? shares : nullptr,
          .range_shares = shares};
}

int TrainStep::launches(const Mode& mode) const {
  constexpr int kModes = 8;
  if (phase_.quantized == nullptr) return mode.number();
  return mode.number() + kModes * phase_.quantized->launches(quantized_mode(mode));
}

at::Tensor TrainStep::forward(const at::Tensor& x, const Mode& mode) {
  const QuantizedModel::Mode of = quantized_mode(mode);
  if (phase_.quantized != nullptr) return phase_.quantized->forward(x, of);
  return walk(*phase_.graph, *phase_.weights, x,
              {.training = true, .batch_norm_training = mode.batch_norm_training, .shares = of.batch_norm_shares});
}

/// Starts the exchange of gradients, before the backward pass that makes them. BatchNorm's statistics, weighted by this
/// rank's `share` of the batch, and `also` are sent now: the backward pass no longer changes them, so their transfer
/// overlaps with it.
void TrainStep::begin_exchange(std::vector<at::Tensor> also, double share, const Mode& mode) {
  const c10::NoGradGuard no_grad;
  // With sync_batch_norm the statistics are equal already.
  if (mode.batch_norm_training && !recipe_.sync_batch_norm && !statistics_.empty()) {
    shared_statistics_ = at::_foreach_mul(statistics_, share);  // a copy: the backward pass still uses the others
    also.insert(also.end(), shared_statistics_.begin(), shared_statistics_.end());
  }
  exchange_->begin(mode.number(), also);
}

void TrainStep::finish_exchange() {
  exchange_->finish();
  const c10::NoGradGuard no_grad;
  if (!shared_statistics_.empty()) at::_foreach_copy_(statistics_, shared_statistics_);
  shared_statistics_.clear();
}

/// Unscales and clips the gradients and adds the step's sums to the epoch's. Returns a float scalar: 1 if the update
/// must be skipped, else 0.
at::Tensor TrainStep::finish_gradients(at::Tensor& sums) {
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = optimizer_.gradients();
  at::Tensor found_inf, norm;
  if (scaler_) found_inf = scaler_->unscale(gradients);
  if (recipe_.clip_gradient > 0) norm = joint_norm(gradients);
  if (staged_ && phase_.ranks != nullptr) agree(sums, found_inf, norm);
  totals_.add_(sums);
  at::Tensor skip = totals_[0].isfinite().logical_not().to(at::kFloat);
  if (scaler_) {
    scaler_->update(found_inf);
    skip = at::maximum(skip, found_inf);
  }
  if (norm.defined()) clip_gradients(gradients, recipe_.clip_gradient, norm);
  return skip;
}

void TrainStep::put_state(TensorFile& file) const {
  put_tensors(file, "optimizer", optimizer_.state());
  if (average_) put_tensors(file, "average", average_->average());
  if (scaler_) put_tensors(file, "scaler", scaler_->state());
}

void TrainStep::restore_state(const TensorFile& file, const std::string& path) {
  restore_tensors(file, "optimizer", optimizer_.state(), path);
  if (average_) restore_tensors(file, "average", average_->average(), path);
  if (scaler_) restore_tensors(file, "scaler", scaler_->state(), path);
}

Teacher make_teacher(const Graph& graph, const Weights& weights, double weight, double temperature) {
  return {.graph = graph, .weights = copies_of(weights), .weight = weight, .temperature = temperature};
}

at::Tensor Teacher::join(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& images,
                         const Objective& objective, const Objective::Whole& whole) const {
  at::Tensor teacher_logits;
  {
    const at::NoGradGuard no_grad;
    teacher_logits = walk(graph, weights, images, {});
  }
  return loss * (1 - weight) + objective.distill(logits, teacher_logits, temperature, whole) * weight;
}

}  // namespace octet
