// SPDX-License-Identifier: Apache-2.0
// The step of a rank that has one stage of the network. Several replicas of the network may share each batch.
#include <ATen/Context.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <string>
#include <utility>
#include <vector>

#include "trainers/loop/gradients.h"
#include "trainers/loop/step.h"

namespace octet {
namespace {

/// LibTorch warns when a gradient is accumulated on another stream than the parameter's. With two lanes
/// (trainers/parallel/stages.h) that is intended: both streams join at the end. While it lives the warning is off on a
/// GPU, for the whole process.
class NoStreamWarning {
 public:
  explicit NoStreamWarning(at::Device device) { set(before_ && device.is_cpu()); }
  ~NoStreamWarning() { set(before_); }
  NoStreamWarning(const NoStreamWarning&) = delete;
  NoStreamWarning& operator=(const NoStreamWarning&) = delete;

 private:
  static void set(bool warn) { at::globalContext().setWarnOnAccumulateGradStreamMismatch(warn); }
  const bool before_ = at::globalContext().warnOnAccumulateGradStreamMismatch();
};

}  // namespace

/// Runs this rank's stage, forward and backward, over all micro-batches. Returns the step's sums on the last stage,
/// zeros on the others.
at::Tensor TrainStep::staged_pass(const at::Tensor& images, const at::Tensor& labels, const Mode& mode) {
  const WalkMode walk_mode{.training = true,
                           .batch_norm_training = mode.batch_norm_training,
                           .shares = batch_norm_of_micro_batches(device_)};
  WalkHooks hooks;
  if (phase_.quantized != nullptr)
    hooks = phase_.quantized->quantizing_hooks(
        {.training = true, .batch_norm_training = mode.batch_norm_training, .observe = mode.observe});
  const int count = phase_.parallel.micro_batches;
  const int64_t part = images.size(0) / count;
  at::Tensor sums = at::zeros_like(totals_);
  StagedPass::Work work;
  work.forward = [&](const at::Tensor& x) {
    const Autocast autocast(device_.type(), precision_);
    return walk_part(phase_.trained_graph(), *phase_.weights, parts_[staged_->stage()], x, walk_mode, hooks);
  };
  work.loss = [&](const at::Tensor& y, int number) {
    const Autocast autocast(device_.type(), precision_);
    const LossAndSums step = loss_of(y.flatten(1), labels.narrow(0, number * part, part), {}, mode);
    step.sums[0].div_(count * replicas_);
    step.sums[2].div_(count * replicas_);
    sums.add_(step.sums);
    return scaled(step.loss.div(count * replicas_));  // the micro-batches' gradients add up to the batch's
  };
  GradientSums gradients(optimizer_.parameters());
  work.after_backward = [&] { gradients.take(); };
  work.before_last_backward = [&] {
    if (!exchange_) return;
    gradients.give_back();  // they are exchanged while the last backward pass adds to them
    work.after_backward = [] {};
    begin_exchange({}, 1.0 / replicas_, mode);
  };
  {
    const NoStreamWarning none(device_);
    staged_->run(images, work);
  }
  gradients.give_back();
  if (exchange_) finish_exchange();
  return sums;
}

void TrainStep::start_stages() {
  const Graph& graph = phase_.trained_graph();
  const std::vector<GraphPart> parts = stages_of(graph, phase_.parallel.stages);
  std::vector<StagedPass::Border> borders;
  if (phase_.ranks == nullptr) {
    parts_ = {{.first = 0, .last = graph.outputs.front()}};
  } else {
    parts_ = parts;
    const at::ScalarType low = precision_ == Precision::fp16 ? at::kHalf : at::kBFloat16;
    const at::ScalarType type = precision_ == Precision::fp32 ? at::kFloat : low;
    for (size_t i = 0; i + 1 < parts.size(); ++i) borders.push_back({graph.nodes[parts[i].last].shape, type});
    replicas_ = phase_.ranks->size() / static_cast<int>(parts.size());
  }
  staged_.emplace(phase_.ranks, std::move(borders), phase_.parallel.micro_batches, recipe_.channels_last);
  if (replicas_ > 1) start_replicas();
}

/// Prepares the exchange among the replicas of this rank's stage, which share each batch. They exchange the gradients
/// of the weights that this stage alone has (a bucket could hold those of a whole network) and of all learned scales,
/// of which every stage has a part.
void TrainStep::start_replicas() {
  phase_.ranks->make_teams(static_cast<int>(parts_.size()));
  const Owners owners(phase_.trained_graph(), parts_);
  Owned weights(parts_.size());
  for (const auto& [name, tensor] : *phase_.weights) owners.add(name, tensor, weights);
  std::vector<at::Tensor> own = optimizer_.parameters();
  for (int stage = 0; stage < static_cast<int>(parts_.size()); ++stage) {
    if (stage == staged_->stage()) continue;
    for (const at::Tensor& other : weights[stage])
      std::erase_if(own, [&](const at::Tensor& p) { return p.const_data_ptr() == other.const_data_ptr(); });
  }
  exchange_.emplace(*phase_.ranks, own, phase_.parallel.exchange, Ranks::Among::team);
  Owned owned(parts_.size());
  for (const ParameterSpec& parameter : parameters(*phase_.graph))
    if (!parameter.trainable()) owners.add(parameter.name, phase_.weights->at(parameter.name), owned);
  statistics_ = owned[staged_->stage()];
}

void TrainStep::take_from_owners() {
  if (!staged_ || phase_.ranks == nullptr) return;
  const Owners owners(phase_.trained_graph(), parts_);
  Owned owned(parts_.size());
  for (const auto& [name, tensor] : *phase_.weights) owners.add(name, tensor, owned);
  for (const auto& [name, tensor] : phase_.learned_scales()) owners.add(name, tensor, owned);
  for (const auto& [name, tensor] : optimizer_.state()) {
    const size_t dot = name.find('.');  // "momentum.conv1.weight"; "step" has none and is equal everywhere
    if (dot != std::string::npos) owners.add(name.substr(dot + 1), tensor, owned);
  }
  if (average_)
    for (const auto& [name, tensor] : average_->average()) owners.add(name, tensor, owned);
  octet::take_from_owners(*phase_.ranks, owned);
}

/// Combines what each rank knows about its own stage into values for the whole network. Undefined tensors stay
/// undefined.
void TrainStep::agree(at::Tensor& sums, at::Tensor& found_inf, at::Tensor& norm) const {
  const at::Tensor none = at::zeros({}, sums.options());
  const at::Tensor all = at::stack({sums[0], sums[1], sums[2], found_inf.defined() ? found_inf.to(at::kDouble) : none,
                                    norm.defined() ? norm.to(at::kDouble).square() : none});
  phase_.ranks->sum({all});
  sums = all.narrow(0, 0, StepTotals::kSums);
  if (found_inf.defined()) found_inf = all[3].gt(0).to(at::kFloat);
  if (norm.defined()) norm = all[4].div(replicas_).sqrt().to(at::kFloat);  // all replicas added the same square
}

}  // namespace octet
