#include "trainers/loop/staged_pass.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "src/common/error.h"
#include "trainers/loop/lanes.h"

namespace octet {

/// One batch on its way. By micro-batch.
struct StagedPass::Flight {
  const at::Tensor& images;
  const Work& work;
  int64_t pictures;  // of a micro-batch
  std::vector<at::Tensor> inputs, outputs, gradients;
  std::vector<Ranks::ExchangePointer> arrivals, answers;  // of inputs; of the outputs' gradients
  std::vector<Ranks::ExchangePointer> unfinished;         // what nothing here waits for
  Lanes::Row forwards, backwards;
  Lanes lanes;  // even and odd micro-batches: what one allocates, the other does not write over. Last, so that both
                // have joined before any tensor goes
};

int StagedPass::ahead(int stage, int stages, int micro_batches) {
  return std::min(micro_batches, 2 * (stages - 1 - stage));
}

int StagedPass::most_under_way(int stage, int stages, int micro_batches) {
  return std::min(micro_batches, ahead(stage, stages, micro_batches) + 2);
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
  if (!first()) {  // before the sums: the stage before waits for it
    const int arriving = number + ahead(stage_ - 1, stages_, micro_batches_);  // in this lane: even many ahead, or none
    swap_with_previous(flight, number, arriving);
  }
  flight.work.after_backward();
  flight.outputs[number].reset();
  if (first()) flight.inputs[number].reset();
}

/// Sends what micro-batch `sent` gave and begins to take the gradients of `answered`; either may be none.
void StagedPass::swap_with_next(Flight& flight, int sent, int answered) const {
  at::Tensor out, in;
  if (sent < micro_batches_) out = flight.outputs[sent].detach().contiguous(format_);
  if (answered >= 0)
    in = flight.gradients[answered] = buffer(borders_[stage_], flight.pictures, flight.images.device());
  const auto exchange = ranks_->start_swap(rank_ + 1, out, in);
  (answered >= 0 ? flight.answers[answered] : flight.unfinished.emplace_back()) = exchange;
}

/// Sends the gradients of `answered` and begins to take the input of `arriving`; there may be none.
void StagedPass::swap_with_previous(Flight& flight, int answered, int arriving) const {
  at::Tensor out, in;
  if (answered >= 0) {
    out = flight.inputs[answered].grad().detach().contiguous(format_);
    flight.inputs[answered].reset();
  }
  const bool arrives = arriving < micro_batches_;
  if (arrives) in = flight.inputs[arriving] = buffer(borders_[stage_ - 1], flight.pictures, flight.images.device());
  const auto exchange = ranks_->start_swap(rank_ - 1, out, in);
  (arrives ? flight.arrivals[arriving] : flight.unfinished.emplace_back()) = exchange;
}

void StagedPass::run(const at::Tensor& images, const Work& work) {
  Flight flight{images, work, images.size(0) / micro_batches_, {}, {}, {}, {}, {}, {}, {}, {}, Lanes(images.device())};
  const size_t count = micro_batches_;
  for (auto* tensors : {&flight.inputs, &flight.outputs, &flight.gradients}) tensors->resize(count);
  flight.arrivals.resize(count);
  flight.answers.resize(count);
  const auto forward_in_lane = [&](int k) {
    if (k < micro_batches_) flight.lanes.queue(k, flight.forwards, [&] { forward(flight, k); });
  };
  const auto send = [&](int sent, int answered) {
    // The buffer of a gradient lies in the lane that reads it. `sent`, where there is one, has the same.
    const int lane = answered >= 0 ? answered : sent;
    if (!last()) flight.lanes.queue(lane, flight.forwards, [&] { swap_with_next(flight, sent, answered); });
  };
  const int own = ahead(stage_, stages_, micro_batches_), before = ahead(stage_ - 1, stages_, micro_batches_);
  flight.lanes.fork();
  for (int k = 0; !first() && k < before; ++k)
    flight.lanes.queue(k, flight.backwards, [&] { swap_with_previous(flight, -1, k); });
  for (int k = 0; k < own; ++k) {
    forward_in_lane(k);
    send(k, -1);
  }
  forward_in_lane(own);
  for (int k = 0; k < micro_batches_; ++k) {
    send(own + k, k);
    forward_in_lane(own + 1 + k);
    flight.lanes.queue(k, flight.backwards, [&] { backward(flight, k); });
  }
  flight.lanes.join();
  if (ranks_ != nullptr) ranks_->finish(flight.unfinished);
}

}  // namespace octet
