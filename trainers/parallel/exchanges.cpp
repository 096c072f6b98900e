// SPDX-License-Identifier: Apache-2.0
// What ranks exchange: tensors on their devices (queued on a GPU, over Gloo on CPUs), and flags, numbers, bytes and
// text on the hosts.
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "trainers/parallel/groups.h"
#if OCTET_CUDA
#include "kernels/core/cuda.h"
#include "src/train/model/device.h"
#endif

namespace octet {
namespace {

constexpr std::chrono::hours kWhileOthersMeasure{24};

void send_from_first(const Group& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors)->wait();
}

/// Returns a checksum that changes with every bit and every exchange of elements: the sum of (2 i + 1) * (bits of
/// element i) modulo 2^64.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor values = in_memory_order(tensor.detach().contiguous());
  const at::Tensor bits = values.element_size() == 8   ? values.view(at::kLong)
                          : values.element_size() == 4 ? values.view(at::kInt).to(at::kLong)
                          : values.element_size() == 2 ? values.view(at::kShort).to(at::kLong)
                                                       : values.view(at::kByte).to(at::kLong);
  return bits.mul(at::arange(1, 2 * bits.numel(), 2, bits.options())).sum();
}

using ByType = std::map<at::ScalarType, std::vector<at::Tensor>>;

ByType by_type(const std::vector<at::Tensor>& tensors) {
  ByType parts;
  for (const at::Tensor& tensor : tensors) parts[tensor.scalar_type()].push_back(in_memory_order(tensor));
  return parts;
}

/// Joins the tensors of each type into one, calls exchange(joined) and copies the result back into them.
template <class Exchange>
void exchange_joined(ByType& tensors, const Exchange& exchange) {
  for (auto& [type, parts] : tensors) {
    const at::Tensor joined = at::cat(parts);
    exchange(joined);
    std::vector<int64_t> sizes;
    for (const at::Tensor& part : parts) sizes.push_back(part.numel());
    at::_foreach_copy_(parts, joined.split_with_sizes(sizes));
  }
}

#if OCTET_CUDA
kernels::StreamClock* clock_of(const at::Tensor& tensor) {
  return reinterpret_cast<kernels::StreamClock*>(tensor.data_ptr<int64_t>());
}
#endif

}  // namespace

struct Ranks::Exchange {
  std::vector<at::Tensor> tensors;  // kept until the works are done
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

void Ranks::make_teams(int teams) {
  with_others([&] {
    if (groups_->team) return;
    groups_->team = team_group(groups_->store, environment_, teams, groups_->where, faults_.patience);
    if (groups_->on_gpu)  // makes NCCL set itself up now, not in the first step
      add_up(groups_->team, at::zeros({1}, at::TensorOptions(groups_->where)));
  });
}

void Ranks::sum(const std::vector<at::Tensor>& tensors) {
  ByType parts = by_type(tensors);
  with_others([&] {
    exchange_joined(parts,
                    [&](const at::Tensor& joined) { groups_->clock.time([&] { add_up(groups_->device, joined); }); });
  });
}

at::Tensor Ranks::gather(const at::Tensor& mine) {
  std::vector<int64_t> shape = mine.sizes().vec();
  shape.insert(shape.begin(), size());
  at::Tensor part = mine.contiguous().flatten(), all = at::empty({size() * part.numel()}, part.options());
  with_others([&] {
    if (!groups_->gathering)
      groups_->gathering = gathering_group(groups_->store, environment_, groups_->where, groups_->host);
    groups_->gathering->_allgather_base(all, part)->wait();
  });
  return all.view(shape);
}

Ranks::ExchangePointer Ranks::start_sum(const at::Tensor& tensor, Among among) {
  auto exchange = std::make_shared<Exchange>();
  exchange->tensors = {in_memory_order(tensor)};
  with_others([&] {
    const Group& group = among == Among::team ? groups_->team : groups_->device;
    exchange->works.push_back(group->allreduce(exchange->tensors));
  });
  return exchange;
}

void Ranks::finish(const std::vector<ExchangePointer>& exchanges) {
  if (exchanges.empty()) return;
  with_others([&] {
    groups_->clock.time([&] {
      for (const ExchangePointer& exchange : exchanges)
        for (const auto& work : exchange->works) work->wait();
    });
  });
}

void Ranks::link(int other) {
  with_others([&] {
    if (groups_->links.count(other) > 0) return;
    Link link{link_group(groups_->store, environment_, other, groups_->where, groups_->host), other};
    if (groups_->on_gpu) {
      link.other = other < rank() ? 0 : 1;
      add_up(link.group, at::zeros({1}, at::TensorOptions(groups_->where)));  // makes NCCL set itself up now
    }
    groups_->links.insert_or_assign(other, link);
  });
}

Ranks::ExchangePointer Ranks::start_swap(int other, const at::Tensor& out, const at::Tensor& in) {
  auto exchange = std::make_shared<Exchange>();
  with_others([&] {
    Link& link = groups_->links.at(other);
    const auto keep = [&](const c10::intrusive_ptr<c10d::Work>& work) {
      if (work) exchange->works.push_back(work);
    };
    if (groups_->on_gpu) link.group->startCoalescing();  // one launch for both directions: neither waits for the other
    if (out.defined()) {
      std::vector<at::Tensor> tensors{in_memory_order(out)};
      exchange->tensors.push_back(tensors.front());
      const auto work = link.group->send(tensors, link.other, groups_->on_gpu ? 0 : link.sent++);
      if (!groups_->on_gpu) keep(work);
    }
    if (in.defined()) {
      std::vector<at::Tensor> tensors{in_memory_order(in)};
      exchange->tensors.push_back(tensors.front());
      const auto work = link.group->recv(tensors, link.other, groups_->on_gpu ? 0 : link.taken++);
      if (!groups_->on_gpu) keep(work);
    }
    if (groups_->on_gpu) keep(link.group->endCoalescing());
  });
  return exchange;
}

void Ranks::copy_from(int from, const std::vector<at::Tensor>& tensors) {
  ByType parts = by_type(tensors);
  c10d::BroadcastOptions options;
  options.rootRank = from;
  with_others([&] {
    exchange_joined(parts, [&](const at::Tensor& joined) {
      std::vector<at::Tensor> sent{joined};
      groups_->device->broadcast(sent, options)->wait();
    });
  });
}

double Ranks::exchange_seconds() const { return groups_->clock.seconds(); }

ExchangeClock::ExchangeClock(at::Device device) : device_(device) {}

#if OCTET_CUDA
at::Tensor& ExchangeClock::of_stream() {
  at::Tensor& clock = on_gpu_[current_stream(device_)];
  if (!clock.defined()) clock = at::zeros({2}, at::TensorOptions(device_).dtype(at::kLong));
  return clock;
}
#endif

void ExchangeClock::start() {
#if OCTET_CUDA
  if (device_.is_cuda()) return kernels::cuda_clock_start(clock_of(of_stream()), current_stream(device_));
#endif
  began_ = std::chrono::steady_clock::now();
}

void ExchangeClock::stop() {
#if OCTET_CUDA
  if (device_.is_cuda()) return kernels::cuda_clock_stop(clock_of(of_stream()), current_stream(device_));
#endif
  time_ += std::chrono::steady_clock::now() - began_;
}

double ExchangeClock::seconds() const {
  int64_t nanoseconds = 0;
  for (const auto& [stream, clock] : on_gpu_) nanoseconds += clock[1].item<int64_t>();
  return 1e-9 * static_cast<double>(nanoseconds) + std::chrono::duration<double>(time_).count();
}

bool Ranks::any(bool mine) {
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, at::kInt);
  with_others([&] { add_up(groups_->host, flag, c10d::ReduceOp::MAX); });
  return flag.item<int>() != 0;
}

std::vector<double> Ranks::sum(std::vector<double> mine) {
  const at::Tensor values = at::from_blob(mine.data(), {static_cast<int64_t>(mine.size())}, at::kDouble);
  with_others([&] { add_up(groups_->host, values); });
  return mine;
}

std::vector<std::vector<uint8_t>> Ranks::gather(const std::vector<uint8_t>& mine) {
  const c10d::AllgatherOptions options{.timeout = kWhileOthersMeasure};
  at::Tensor length = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  at::Tensor lengths = at::empty({size()}, length.options()), all;
  with_others([&] {
    groups_->host->_allgather_base(lengths, length, options)->wait();
    at::Tensor padded = at::zeros({lengths.max().item<int64_t>()}, at::kByte);
    std::copy(mine.begin(), mine.end(), padded.data_ptr<uint8_t>());
    all = at::empty({size(), padded.numel()}, at::kByte);
    at::Tensor flat = all.flatten();
    if (padded.numel() > 0) groups_->host->_allgather_base(flat, padded, options)->wait();
  });
  std::vector<std::vector<uint8_t>> result;
  for (int rank = 0; rank < size(); ++rank) {
    const uint8_t* const begin = all.const_data_ptr<uint8_t>() + rank * all.size(1);
    result.emplace_back(begin, begin + lengths[rank].item<int64_t>());
  }
  return result;
}

std::string Ranks::from_first(const std::string& text) {
  std::string result = text;
  with_others([&] {
    at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
    send_from_first(groups_->host, length);
    result.resize(static_cast<size_t>(length.item<int64_t>()));
    if (!result.empty())
      send_from_first(groups_->host, at::from_blob(result.data(), {static_cast<int64_t>(result.size())}, at::kByte));
  });
  return result;
}

void Ranks::copy_from_first(std::map<std::string, at::Tensor>& tensors) {
  with_others([&] {
    for (auto& [name, tensor] : tensors) {
      if (tensor.numel() > 0) send_from_first(groups_->host, in_memory_order(tensor));
    }
  });
}

void Ranks::require_same(const std::map<std::string, at::Tensor>& tensors, const std::string& what) {
  std::vector<at::Tensor> bits;
  for (const auto& [name, tensor] : tensors) bits.push_back(bits_of(tensor).to(at::kCPU));
  if (bits.empty()) return;
  const at::Tensor mine = at::stack(bits), theirs = mine.clone();
  at::Tensor differing = at::full({1}, static_cast<int64_t>(bits.size()), at::kLong);
  with_others([&] {
    send_from_first(groups_->host, theirs);
    for (int64_t i = mine.numel() - 1; i >= 0; --i)
      if (mine[i].item<int64_t>() != theirs[i].item<int64_t>()) differing.fill_(i);
    add_up(groups_->host, differing, c10d::ReduceOp::MIN);
  });
  const auto first = static_cast<size_t>(differing.item<int64_t>());
  if (first == bits.size()) return;
  throw promise_error(fmt::format("{}: '{}' is not the same on all {} ranks; they train different networks", what,
                                  std::next(tensors.begin(), static_cast<long>(first))->first, size()));
}

}  // namespace octet
