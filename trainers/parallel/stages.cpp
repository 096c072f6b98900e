// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/stages.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "src/base/error.h"
#include "src/net/op_traits.h"

namespace octet {
namespace {

int node_named(const Graph& graph, const std::string& layer) {
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].name == layer) return static_cast<int>(n);
  std::vector<std::string> some;
  const std::vector<int> cuts = cut_points(graph);
  for (size_t i = 0; i < cuts.size(); i += std::max<size_t>(1, cuts.size() / 8))
    some.push_back(graph.nodes[cuts[i]].name);
  throw usage_error(
      fmt::format("parallel.stages: the fused network has no layer '{}'; it may be cut behind {} and others: octet "
                  "inspect RECIPE --stages 2 proposes",
                  layer, fmt::join(some, ", ")));
}

/// Throws Error(usage) saying why the network cannot be cut after `node`.
[[noreturn]] void refuse_cut(const Graph& graph, int node) {
  const std::vector<int> last = last_readers(graph);
  std::vector<std::string> crossing;
  for (int n = 0; n <= node; ++n)
    if (last[n] > node) crossing.push_back(graph.nodes[n].name);
  throw usage_error(
      fmt::format("parallel.stages: a cut behind '{}' would part {} ({}); only one value may go from a process to the "
                  "next: cut where blocks end",
                  graph.nodes[node].name, crossing.size() == 1 ? "an output of the network" : "several values",
                  fmt::join(crossing, ", ")));
}

/// Makes work queued in `later` from now on start after what is queued in `earlier`.
void follow(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace

std::vector<GraphPart> stages_of(const Graph& graph, const std::vector<std::string>& layers) {
  const std::vector<int> cuts = cut_points(graph);
  std::vector<GraphPart> parts;
  int first = 0;
  for (const std::string& layer : layers) {
    const int node = node_named(graph, layer);
    if (!std::binary_search(cuts.begin(), cuts.end(), node)) refuse_cut(graph, node);
    if (node <= first)
      throw usage_error(fmt::format("parallel.stages: '{}' is not behind '{}'; name layers in the network's order",
                                    layer, graph.nodes[first].name));
    parts.push_back({.first = first, .last = node});
    first = node;
  }
  parts.push_back({.first = first, .last = graph.outputs.front()});
  return parts;
}

const GatherShares* batch_norm_of_micro_batches(at::Device device) {
  static const GatherShares kByItself = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  return device.is_cuda() ? &kByItself : nullptr;
}

BatchShare batch_share(const Ranks* ranks, const std::vector<std::string>& layers) {
  if (ranks == nullptr) return {};
  const int stages = static_cast<int>(layers.size()) + 1;
  return {ranks->rank() / stages, ranks->size() / stages};
}

Owners::Owners(const Graph& graph, const std::vector<GraphPart>& parts) {
  int64_t channels = 0;
  size_t part = 0;
  edges_ = channels_ = {0};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (part + 1 < parts.size() && static_cast<int>(n) > parts[part].last) {
      ++part;
      edges_.push_back(static_cast<int64_t>(n));
      channels_.push_back(channels);
    }
    part_of_[node.name] = part;
    if (!node.batch_norm.empty()) part_of_[node.batch_norm] = part;
    if (has_weight(node.op)) channels += node.out_channels;
  }
  edges_.push_back(static_cast<int64_t>(graph.nodes.size()));
  channels_.push_back(channels);
}

void Owners::add(const std::string& name, const at::Tensor& tensor, Owned& owned) const {
  const at::Tensor plain = tensor.detach();
  const bool of_edges = name == "edges.scale" || name == "edges.offset";
  if (!of_edges && name != "weights.scale") {
    owned.at(part_of_.at(name.substr(0, name.rfind('.')))).push_back(plain);
    return;
  }
  const std::vector<int64_t>& begin = of_edges ? edges_ : channels_;
  for (size_t part = 0; part + 1 < begin.size(); ++part)
    if (begin[part + 1] > begin[part])
      owned.at(part).push_back(plain.narrow(0, begin[part], begin[part + 1] - begin[part]));
}

void take_from_owners(Ranks& ranks, const Owned& owned) {
  const c10::NoGradGuard no_grad;
  for (size_t rank = 0; rank < owned.size(); ++rank)
    if (!owned[rank].empty()) ranks.copy_from(static_cast<int>(rank), owned[rank]);
}

/// A batch that is passing through the stages. Vectors are indexed by micro-batch.
struct StagedPass::Flight {
  const at::Tensor& images;
  const Work& work;
  int64_t size;  // images in a micro-batch
  std::vector<at::Tensor> inputs, outputs, gradients;
  std::vector<Ranks::ExchangePointer> arrivals, answers;  // of inputs; of the outputs' gradients
  std::vector<Ranks::ExchangePointer> unfinished;         // exchanges that no pass here waits for
  Lanes::Row forwards, backwards;
  // Even micro-batches run in one lane, odd ones in the other, so neither overwrites memory that the other allocated.
  Lanes lanes;  // last: both lanes have joined before any tensor is freed
};

int StagedPass::ahead(int stage, int stages, int micro_batches) {
  return std::min(micro_batches, 2 * (stages - 1 - stage));
}

int StagedPass::max_under_way(int stage, int stages, int micro_batches) {
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

at::Tensor StagedPass::buffer(const Border& border, int64_t images, at::Device device) const {
  return at::empty({images, border.shape.c, border.shape.h, border.shape.w},
                   at::TensorOptions(device).dtype(border.type), format_);
}

void StagedPass::forward(Flight& flight, int number) const {
  at::Tensor& x = flight.inputs[number];
  if (first()) {
    x = flight.images.narrow(0, number * flight.size, flight.size);
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
  if (y.scalar_type() != border.type || y.numel() != flight.size * border.shape.elements())
    throw promise_error(fmt::format("stage {}: gives {} values of type {}, the next one expects {} of {}", stage_,
                                    y.numel(), c10::toString(y.scalar_type()), flight.size * border.shape.elements(),
                                    c10::toString(border.type)));
  flight.outputs[number] = y;
}

void StagedPass::backward(Flight& flight, int number) const {
  std::vector<at::Tensor> gradient;
  if (!last()) {
    ranks_->finish({flight.answers[number]});
    gradient.push_back(flight.gradients[number]);
  }
  if (number + 1 == micro_batches_) flight.work.before_last_backward();
  // Weights are quantized once for all micro-batches, so the autograd graph of that is needed until the last of them.
  torch::autograd::backward({flight.outputs[number]}, gradient, /*retain_graph=*/number + 1 < micro_batches_);
  if (!first()) {  // before gradients are added up: the previous stage waits for this
    // Both belong to one lane: ahead() is even, or nothing arrives.
    const int arriving = number + ahead(stage_ - 1, stages_, micro_batches_);
    swap_with_previous(flight, number, arriving);
  }
  flight.work.after_backward();
  flight.outputs[number].reset();
  if (first()) flight.inputs[number].reset();
}

/// Sends the output of micro-batch `sent` and starts receiving the gradients of `answered`. Either may not exist: sent
/// >= micro_batches_, answered < 0.
void StagedPass::swap_with_next(Flight& flight, int sent, int answered) const {
  at::Tensor out, in;
  if (sent < micro_batches_) out = flight.outputs[sent].detach().contiguous(format_);
  if (answered >= 0) in = flight.gradients[answered] = buffer(borders_[stage_], flight.size, flight.images.device());
  const auto exchange = ranks_->start_swap(rank_ + 1, out, in);
  (answered >= 0 ? flight.answers[answered] : flight.unfinished.emplace_back()) = exchange;
}

/// Sends the gradients of micro-batch `answered` and starts receiving the input of `arriving`. Either may not exist.
void StagedPass::swap_with_previous(Flight& flight, int answered, int arriving) const {
  at::Tensor out, in;
  if (answered >= 0) {
    out = flight.inputs[answered].grad().detach().contiguous(format_);
    flight.inputs[answered].reset();
  }
  const bool arrives = arriving < micro_batches_;
  if (arrives) in = flight.inputs[arriving] = buffer(borders_[stage_ - 1], flight.size, flight.images.device());
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
    // The buffer of a gradient belongs to the lane that reads it. Micro-batch `sent`, if it exists, has the same lane.
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

Lanes::Lanes(at::Device device) : device_(device) {}

Lanes::~Lanes() {
  try {
    join();
  } catch (const std::exception&) {  // the GPU failed: nothing runs on it, and the exception under way says so
  }
}

void Lanes::fork() {
  if (device_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  // All phases share one: LibTorch keeps a cuBLAS work space of some 70 MB for every stream that used cuBLAS.
  static const c10::Stream kSecond = gpu.getStreamFromGlobalPool(device_);
  streams_ = {gpu.getStream(device_), kSecond};
  follow(streams_[0], streams_[1]);
}

void Lanes::join() {
  const std::vector<c10::Stream> forked = std::exchange(streams_, {});
  if (!forked.empty()) follow(forked[1], forked[0]);
}

void Lanes::enter(int number, const Row& row, c10::OptionalStreamGuard& guard) const {
  if (device_.is_cpu()) return;
  guard.reset_stream(streams_[number % 2]);
  if (row.last_) row.last_->block(streams_[number % 2]);
}

void Lanes::leave(int number, Row& row) const {
  if (device_.is_cpu()) return;
  row.last_.emplace(device_.type());
  row.last_->record(streams_[number % 2]);
}

}  // namespace octet
