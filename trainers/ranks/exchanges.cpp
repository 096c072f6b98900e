// Tensors that ranks exchange where they train: queued on a GPU, by Gloo on CPUs.
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "trainers/ranks/connected.h"

namespace octet {

struct Ranks::Exchange {
  std::vector<at::Tensor> tensors;  // theirs until it is done
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

void Ranks::make_teams(int teams) {
  with_others([&] {
    if (groups_->team) return;
    groups_->team = team_group(groups_->store, environment_, teams, groups_->where, faults_.patience);
    if (groups_->on_gpu)  // NCCL sets itself up: now, not later
      add_up(groups_->team, at::zeros({1}, at::TensorOptions(groups_->where)));
  });
}

void Ranks::sum(const std::vector<at::Tensor>& tensors) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) by_type[tensor.scalar_type()].push_back(in_memory_order(tensor));
  with_others([&] {
    for (auto& [type, parts] : by_type) {
      const at::Tensor all = at::cat(parts);
      groups_->clock.time([&] { add_up(groups_->device, all); });
      std::vector<int64_t> sizes;
      for (const at::Tensor& part : parts) sizes.push_back(part.numel());
      at::_foreach_copy_(parts, all.split_with_sizes(sizes));
    }
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
      add_up(link.group, at::zeros({1}, at::TensorOptions(groups_->where)));  // NCCL sets itself up: now, not later
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
    if (groups_->on_gpu) link.group->startCoalescing();  // one launch both ways: neither waits for the other
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
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) by_type[tensor.scalar_type()].push_back(in_memory_order(tensor));
  with_others([&] {
    for (auto& [type, parts] : by_type) {
      std::vector<at::Tensor> all{at::cat(parts)};
      c10d::BroadcastOptions options;
      options.rootRank = from;
      groups_->device->broadcast(all, options)->wait();
      std::vector<int64_t> sizes;
      for (const at::Tensor& part : parts) sizes.push_back(part.numel());
      at::_foreach_copy_(parts, all.front().split_with_sizes(sizes));
    }
  });
}

double Ranks::exchange_seconds() const { return groups_->clock.seconds(); }

}  // namespace octet
