#include "trainers/loop/step.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "src/qat/sparse_weights.h"
#include "trainers/loop/loss.h"
#include "trainers/loop/training_state.h"

namespace octet {
namespace {

constexpr double kPrunedDecay = 2e-4;  // SR-STE's lambda

/// Memory format of all weights, in place: models that share the tensors see it.
Weights& laid_out(const Phase& phase) {
  for (auto& [name, tensor] : *phase.weights) {
    if (tensor.dim() != 4) continue;
    const auto format = phase.recipe->channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    tensor.set_data(tensor.detach().contiguous(format));
  }
  return *phase.weights;
}

/// All that is averaged.
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
      precision_(value_named(kPrecisions, recipe_.precision, "precision")),
      gather_(phase.ranks == nullptr ? GatherShares()
                                     : [&ranks = *phase.ranks](const at::Tensor& mine) { return ranks.gather(mine); }),
      optimizer_(recipe_, *phase.graph, laid_out(phase), phase.learned_scales(), phase.alpha_decay) {
  for (const ParameterSpec& parameter : parameters(*phase.graph))
    if (!parameter.trainable()) statistics_.push_back(phase.weights->at(parameter.name));
  if (recipe_.ema > 0) average_.emplace(with_scales(phase), recipe_.ema);
  if (precision_ == Precision::fp16) scaler_.emplace(device_);
  if (!phase.parallel.stages.empty()) {
    start_stages();
  } else if (phase.ranks != nullptr)
    exchange_.emplace(*phase.ranks, optimizer_.parameters(),
                      value_named(kExchangeTypes, phase.parallel.exchange, "parallel.exchange"));
  if (phase.freezing.freezes()) freezer_.emplace(*phase.quantized);
  totals_ = at::zeros({StepTotals::kSums}, at::TensorOptions(device_).dtype(at::kDouble));
  // The fused optimizers read a double on the CPU and a float on the GPU.
  scalars_ = at::zeros({4}, at::TensorOptions(device_).dtype(device_.is_cpu() ? at::kDouble : at::kFloat));
}

void TrainStep::set(double learning_rate, long step, double freezing_threshold) {
  scalars_[0].fill_(learning_rate);  // the values travel as arguments of two small kernels
  if (average_) scalars_[1].fill_(average_->rate(step));
  scalars_[2].fill_(learning_rate * phase_.scale_rate);
  if (freezer_) scalars_[3].fill_(freezing_threshold);
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
  if (freezer_) freezer_->step(scalars_[3], skip);
  if (average_) average_->update(scalars_[1]);
}

/// Forward and backward. Returns the step's sums, of all ranks.
at::Tensor TrainStep::pass(const at::Tensor& x, const at::Tensor& labels, const Mode& mode) {
  Judged judged;
  {
    const Autocast autocast(device_.type(), precision_);
    judged = judge(forward(x, mode), labels, x);
  }
  if (exchange_) {
    const double share = 1.0 / phase_.ranks->size();
    judged.loss = judged.loss.div(phase_.ranks->size());  // the ranks' gradients add up to the batch's
    judged.sums[0].mul_(share);
    judged.sums[2].mul_(share);
    begin_exchange({judged.sums}, share, mode);
  }
  scaled(judged.loss).backward();
  if (exchange_) finish_exchange();
  return judged.sums;
}

/// x: the pictures, for a teacher.
TrainStep::Judged TrainStep::judge(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& x) const {
  at::Tensor loss = mean_loss(logits, labels, recipe_.label_smoothing), cross_entropy = loss.detach();
  if (recipe_.label_smoothing > 0) {  // what validation measures, too
    const c10::NoGradGuard no_grad;
    cross_entropy = mean_loss(logits.detach(), labels, 0);
  }
  if (phase_.teacher != nullptr) loss = phase_.teacher->join(loss, logits, x);
  const c10::NoGradGuard no_grad;
  const at::Tensor correct = right_pictures(logits.detach(), labels);
  return {loss, at::stack({loss.detach().to(at::kDouble), correct, cross_entropy.to(at::kDouble)})};
}

at::Tensor TrainStep::forward(const at::Tensor& x, const Mode& mode) {
  const GatherShares* const shares = gather_ ? &gather_ : nullptr;
  const GatherShares* const of_batch_norm = recipe_.sync_batch_norm ? shares : nullptr;
  if (phase_.quantized == nullptr)
    return walk(*phase_.graph, *phase_.weights, x,
                {.training = true, .batch_norm_training = mode.batch_norm_training, .shares = of_batch_norm});
  return phase_.quantized->forward(x, {.training = true,
                                       .batch_norm_training = mode.batch_norm_training,
                                       .observe = mode.observe,
                                       .quantize = true,
                                       .batch_norm_shares = of_batch_norm,
                                       .range_shares = shares});
}

/// What the backward pass does not change goes first, beside it: BatchNorm's statistics, of each `share` of the batch,
/// and `also`.
void TrainStep::begin_exchange(std::vector<at::Tensor> also, double share, const Mode& mode) {
  const c10::NoGradGuard no_grad;
  if (mode.batch_norm_training && !recipe_.sync_batch_norm && !statistics_.empty()) {  // else the same already
    shared_statistics_ = at::_foreach_mul(statistics_, share);  // the backward pass holds on to the others
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

/// Unscales and clips, and adds the sums to the epoch's; returns 1 (float scalar) if the step must be skipped, else 0.
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
  if (freezer_) put_tensors(file, "oscillation", freezer_->state());
}

void TrainStep::restore_state(const TensorFile& file, const std::string& path) {
  restore_tensors(file, "optimizer", optimizer_.state(), path);
  if (average_) restore_tensors(file, "average", average_->average(), path);
  if (scaler_) restore_tensors(file, "scaler", scaler_->state(), path);
  if (freezer_) restore_tensors(file, "oscillation", freezer_->state(), path);
}

}  // namespace octet
