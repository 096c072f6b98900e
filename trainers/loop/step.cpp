#include "trainers/loop/step.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "trainers/loop/loss.h"
#include "trainers/loop/training_state.h"

namespace octet {
namespace {

/// Memory format of all weights, in place: models that share the tensors see it.
Weights& laid_out(const Phase& phase) {
  for (auto& [name, tensor] : *phase.weights) {
    if (tensor.dim() != 4) continue;
    const auto format = phase.recipe->channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    tensor.set_data(tensor.detach().contiguous(format));
  }
  return *phase.weights;
}

Weights learned_scales(const Phase& phase) {
  return phase.quantized == nullptr ? Weights() : phase.quantized->learned_scales();
}

/// All that is averaged.
Weights with_scales(const Phase& phase) {
  Weights all = *phase.weights;
  all.merge(learned_scales(phase));
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
      optimizer_(recipe_, *phase.graph, laid_out(phase), learned_scales(phase)) {
  for (const ParameterSpec& parameter : parameters(*phase.graph))
    if (!parameter.trainable()) statistics_.push_back(phase.weights->at(parameter.name));
  if (recipe_.ema > 0) average_.emplace(with_scales(phase), recipe_.ema);
  if (precision_ == Precision::fp16) scaler_.emplace(device_);
  totals_ = at::zeros({StepTotals::kSums}, at::TensorOptions(device_).dtype(at::kDouble));
  // The fused optimizers read a double on the CPU and a float on the GPU.
  scalars_ = at::zeros({3}, at::TensorOptions(device_).dtype(device_.is_cpu() ? at::kDouble : at::kFloat));
}

void TrainStep::set(double learning_rate, long step) {
  scalars_[0].fill_(learning_rate);  // the values travel as arguments of two small kernels
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
  at::Tensor logits, loss, cross_entropy;
  {
    const Autocast autocast(device_.type(), precision_);
    const at::Tensor x = recipe_.channels_last ? images : images.contiguous();
    logits = forward(x, mode);
    loss = mean_loss(logits, labels, recipe_.label_smoothing);
    cross_entropy = loss.detach();
    if (recipe_.label_smoothing > 0) {  // what validation measures, too
      const c10::NoGradGuard no_grad;
      cross_entropy = mean_loss(logits.detach(), labels, 0);
    }
    if (phase_.teacher != nullptr) loss = phase_.teacher->join(loss, logits, x);
  }
  at::Tensor sums;  // in the order of StepTotals
  {
    const c10::NoGradGuard no_grad;
    const at::Tensor correct = right_pictures(logits.detach(), labels);
    sums = at::stack({loss.detach().to(at::kDouble), correct, cross_entropy.to(at::kDouble)});
  }
  if (phase_.ranks != nullptr) loss = loss.div(phase_.ranks->size());  // the ranks' gradients add up to the batch's
  (scaler_ ? scaler_->scale(loss) : loss).backward();
  if (phase_.ranks != nullptr) share_with_ranks(sums, mode);
  totals_.add_(sums);

  const at::Tensor skip = finish_gradients();
  optimizer_.step({.weights = scalars_[0], .scales = scalars_[2]}, skip);
  if (average_) average_->update(scalars_[1]);
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

/// One exchange: gradients, the step's sums, BatchNorm's statistics.
void TrainStep::share_with_ranks(at::Tensor& sums, const Mode& mode) {
  const c10::NoGradGuard no_grad;
  const double share = 1.0 / phase_.ranks->size();
  sums[0].mul_(share);
  sums[2].mul_(share);
  std::vector<at::Tensor> shared = optimizer_.gradients();
  shared.push_back(sums);
  if (mode.batch_norm_training && !recipe_.sync_batch_norm && !statistics_.empty()) {  // else the same already
    at::_foreach_mul_(statistics_, share);
    shared.insert(shared.end(), statistics_.begin(), statistics_.end());
  }
  phase_.ranks->sum(shared);
}

/// Unscales and clips; returns 1 (float scalar) if the step must be skipped, else 0.
at::Tensor TrainStep::finish_gradients() {
  const c10::NoGradGuard no_grad;
  at::Tensor skip = totals_[0].isfinite().logical_not().to(at::kFloat);
  const std::vector<at::Tensor> gradients = optimizer_.gradients();
  if (scaler_) {
    const at::Tensor found_inf = scaler_->unscale(gradients);
    scaler_->update(found_inf);
    skip = at::maximum(skip, found_inf);
  }
  if (recipe_.clip_gradient > 0) clip_gradients(gradients, recipe_.clip_gradient);
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

}  // namespace octet
