#include "trainers/loop/staged_pass.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "src/common/error.h"

namespace octet {

/// One batch on its way. By micro-batch.
struct StagedPass::Flight {
  const at::Tensor& images;
  const Work& work;
  int64_t pictures;  // of a micro-batch
  std::vector<at::Tensor> inputs, outputs, gradients;
  std::vector<Ranks::ExchangePointer> arrivals, answers;  // of inputs; of the outputs' gradients
  std::vector<Ranks::ExchangePointer> unfinished;         // what nothing here waits for
};

int StagedPass::ahead(int stage, int stages, int micro_batches) {
  return std::min(micro_batches, 2 * (stages - 1 - stage));
}

StagedPass::StagedPass(Ranks* ranks, std::vector<Border> borders, int micro_batches, bool channels_last)
    : ranks_(ranks),
      borders_(std::move(borders)),
      stages_(static_cast<int>(borders_.size()) + 1),
      rank_(ranks == nullptr ? 0 : ranks->rank()),
      stage_(rank_ % stages_),
      micro_batches_(micro_batches),
      format_(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous) {
  if (ranks == nullptr) return;
  if (!first()) ranks->link(rank_ - 1);
  if (!last()) ranks->link(rank_ + 1);
}

at::Tensor StagedPass::buffer(const Border& border, int64_t pictures, at::Device device) const {
  return at::empty({pictures, border.shape.c, border.shape.h, border.shape.w},
                   at::TensorOptions(device).dtype(border.type), format_);
}

/// The input of a micro-batch, from the stage before.
void StagedPass::expect(Flight& flight, int number) const {
  flight.inputs[number] = buffer(borders_[stage_ - 1], flight.pictures, flight.images.device());
}

void StagedPass::forward(Flight& flight, int number) const {
  at::Tensor& x = flight.inputs[number];
  if (first()) {
    x = flight.images.narrow(0, number * flight.pictures, flight.pictures);
  } else {
    ranks_->finish({flight.arrivals[number]});
    x.requires_grad_(true);
  }
  const at::Tensor y = flight.work.forward(x);
  if (last()) {
    flight.outputs[number] = flight.work.loss(y, number);
    return;
  }
  const Border& border = borders_[stage_];
  if (y.scalar_type() != border.type || y.numel() != flight.pictures * border.shape.elements())
    throw promise_error(fmt::format("stage {}: gives {} values of type {}, the next one expects {} of {}", stage_,
                                    y.numel(), c10::toString(y.scalar_type()),
                                    flight.pictures * border.shape.elements(), c10::toString(border.type)));
  flight.outputs[number] = y;
}

void StagedPass::backward(Flight& flight, int number) const {
  std::vector<at::Tensor> gradient;
  if (!last()) {
    ranks_->finish({flight.answers[number]});
    gradient.push_back(flight.gradients[number]);
  }
  if (number + 1 == micro_batches_) flight.work.before_last_backward();
  // Weights are quantized once for all micro-batches: what that keeps is needed until the last of them.
  torch::autograd::backward({flight.outputs[number]}, gradient, /*retain_graph=*/number + 1 < micro_batches_);
  flight.work.after_backward();
  flight.outputs[number].reset();
  if (first()) flight.inputs[number].reset();
}

void StagedPass::run(const at::Tensor& images, const Work& work) {
  const size_t count = micro_batches_;
  Flight flight{images, work, images.size(0) / micro_batches_, {}, {}, {}, {}, {}, {}};
  for (auto* tensors : {&flight.inputs, &flight.outputs, &flight.gradients}) tensors->resize(count);
  flight.arrivals.resize(count);
  flight.answers.resize(count);
  const auto detached = [&](const at::Tensor& x) { return x.detach().contiguous(format_); };
  const int own = ahead(stage_, stages_, micro_batches_), before = ahead(stage_ - 1, stages_, micro_batches_);
  for (int k = 0; !first() && k < before; ++k) {
    expect(flight, k);
    flight.arrivals[k] = ranks_->start_swap(rank_ - 1, {}, flight.inputs[k]);
  }
  for (int k = 0; k < own; ++k) {
    forward(flight, k);
    flight.unfinished.push_back(ranks_->start_swap(rank_ + 1, detached(flight.outputs[k]), {}));
  }
  for (int k = 0; k < micro_batches_; ++k) {
    const int next = own + k;
    if (next < micro_batches_) forward(flight, next);
    if (!last()) {
      flight.gradients[k] = buffer(borders_[stage_], flight.pictures, images.device());
      const bool sends = next < micro_batches_;
      flight.answers[k] =
          ranks_->start_swap(rank_ + 1, sends ? detached(flight.outputs[next]) : at::Tensor(), flight.gradients[k]);
    }
    backward(flight, k);
    if (first()) continue;
    const int arriving = before + k;
    if (arriving < micro_batches_) expect(flight, arriving);
    const at::Tensor gradient = detached(flight.inputs[k].grad());
    flight.inputs[k].reset();
    const bool more = arriving < micro_batches_;
    const auto exchange = ranks_->start_swap(rank_ - 1, gradient, more ? flight.inputs[arriving] : at::Tensor());
    (more ? flight.arrivals[arriving] : flight.unfinished.emplace_back()) = exchange;
  }
  if (ranks_ != nullptr) ranks_->finish(flight.unfinished);
}

}  // namespace octet
