#include "trainers/ranks/ranks.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/common/split.h"
#include "src/common/utf8.h"
#include "trainers/ranks/exchange_clock.h"
#include "trainers/ranks/groups.h"
#include "trainers/ranks/last_words.h"
#include "trainers/ranks/watch.h"

namespace octet {
namespace {

constexpr std::chrono::hours kWhileOthersMeasure{24};
constexpr int kLongestStep = 60, kTimesAtFirst = 5;

void add_up(const Group& group, const at::Tensor& tensor, c10d::ReduceOp::RedOpType how = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  group->allreduce(tensors, options)->wait();
}

void send_from_first(const Group& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors)->wait();
}

/// All elements in the order of memory.
at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) throw promise_error("ranks: a tensor with holes cannot be exchanged");
  return tensor.as_strided({tensor.numel()}, {1});
}

/// Changes with every bit and every change of places: sum of (2 i + 1) * bits of element i, modulo 2^64.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor values = in_memory_order(tensor.detach().contiguous());
  const at::Tensor bits = values.element_size() == 8   ? values.view(at::kLong)
                          : values.element_size() == 4 ? values.view(at::kInt).to(at::kLong)
                          : values.element_size() == 2 ? values.view(at::kShort).to(at::kLong)
                                                       : values.view(at::kByte).to(at::kLong);
  return bits.mul(at::arange(1, 2 * bits.numel(), 2, bits.options())).sum();
}

/// "version 0.1.0 here, version 0.2.0 on rank 0": the first line that differs.
std::string first_difference(const std::string& mine, const std::string& theirs) {
  const std::vector<std::string> here = split(mine, '\n'), there = split(theirs, '\n');
  size_t i = 0;
  while (i < here.size() && i < there.size() && here[i] == there[i]) ++i;
  const auto line = [&](const std::vector<std::string>& lines) { return i < lines.size() ? lines[i] : "nothing"; };
  return fmt::format("{} here, {} on rank 0", line(here), line(there));
}

}  // namespace

struct Ranks::Exchange {
  std::vector<at::Tensor> tensors;  // theirs until it is done
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

/// To one other rank.
struct Link {
  Group group;
  int other = 0;            // its rank in the group
  int sent = 0, taken = 0;  // so far: Gloo tells messages by number
};

struct Ranks::Groups {
  Groups(const RankEnvironment& environment, at::Device device, std::chrono::milliseconds patience)
      : where(device),
        on_gpu(device.is_cuda()),
        store(once_all_came(open_store(environment), environment)),
        host(host_group(store, environment, patience)),
        device(device_group(store, environment, where, host)),
        last_words(store, environment.rank, environment.size),
        clock(where) {}
  /// So that the others notice.
  void abandon() {
    if (!on_gpu) {
      links.clear();
      team.reset();
      gathering.reset();
      device.reset();
    }
    host.reset();
  }
  const at::Device where;
  const bool on_gpu;
  c10::intrusive_ptr<c10d::Store> store;
  Group host, device, team;   // team: once there are any
  Group gathering;            // once something was gathered: it does not wait for sums that are under way
  std::map<int, Link> links;  // by the other's rank
  LastWords last_words;
  ExchangeClock clock;
  std::optional<Watch> watch;
};

void end_process(const std::string& why) {
  std::fputs(fmt::format("octet: {}\n", printable_lines(why)).c_str(), stderr);
  ::_exit(static_cast<int>(ExitCode::promise));
}

std::string Ranks::stops_because(const std::string& why) const {
  return fmt::format("rank {} of {} stops: {}", rank(), size(), why);
}

/// What c10d throws becomes a sentence.
template <class Work>
void Ranks::with_others(const Work& work) {
  if (!groups_ || !groups_->host) throw OthersLost(fmt::format("rank {} of {} has left the others", rank(), size()));
  try {
    work();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    groups_->abandon();
    throw_if_interrupted();  // so were the others, who may have noticed it first
    const std::string why =
        stops_because(fmt::format("{} ({})", groups_->last_words.ask(), split(error.what(), '\n').front()));
    if (groups_->on_gpu) faults_.end(why);
    throw OthersLost(why);
  }
}

Ranks::Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement)
    : Ranks(environment, device, agreement, Faults()) {}

Ranks::Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement, Faults faults)
    : environment_(environment), faults_(std::move(faults)) {
  try {
    groups_ = std::make_unique<Groups>(environment, device, faults_.patience);
    groups_->watch.emplace(
        *groups_->store, environment.store_is_there ? "the launcher through which they met" : "rank 0", rank(), size(),
        [this](const std::string& who) { faults_.end(stops_because(who)); }, Watch::Patience());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw promise_error(fmt::format("rank {} of {} found no others at {}:{}: {}", rank(), size(), environment.address,
                                    environment.port, split(error.what(), '\n').front()));
  }
  const std::string theirs = from_first(agreement);
  if (!any(theirs != agreement)) return;
  throw usage_error(theirs == agreement ? "another rank was started otherwise than rank 0; its own message says how"
                                        : fmt::format("rank {} was started otherwise than rank 0: {}", rank(),
                                                      first_difference(agreement, theirs)));
}

Ranks::~Ranks() = default;

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

std::optional<int> Ranks::longest_step() const {
  return faults_.longest_step || !groups_->on_gpu ? faults_.longest_step : kLongestStep;
}

void Ranks::Steps::due() {
  if (ranks_ == nullptr) return;
  if (const std::optional<int> seconds = ranks_->longest_step())
    ranks_->groups_->watch->due_within(std::chrono::seconds(ended_ < first_ ? kTimesAtFirst * *seconds : *seconds));
}

void Ranks::Steps::ended() {
  ++ended_;
  due();
}

void Ranks::Steps::none_due() {
  if (ranks_ != nullptr && ranks_->groups_ && ranks_->groups_->watch) ranks_->groups_->watch->nothing_due();
}

double Ranks::exchange_seconds() const { return groups_->clock.seconds(); }

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

void Ranks::meet() { any(false); }

void Ranks::leave() {
  meet();
  groups_->watch.reset();
  if (groups_->on_gpu) {  // NCCL complains of a group that merely goes
    for (auto& [other, link] : groups_->links) link.group->shutdown();
    if (groups_->team) groups_->team->shutdown();
    if (groups_->gathering) groups_->gathering->shutdown();
    groups_->device->shutdown();
  }
  groups_.reset();
}

bool Ranks::fail(const std::string& reason) {
  if (!groups_ || !groups_->host) return false;
  groups_->abandon();
  const bool said = groups_->last_words.leave(split(reason, '\n').front());
  if (!groups_->on_gpu) return said;
  for (auto& [other, link] : groups_->links) link.group->abort();
  if (groups_->team) groups_->team->abort();
  if (groups_->gathering) groups_->gathering->abort();
  groups_->device->abort();  // what the GPU waits for ends
  return said;
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
