// What a rank holds while it is connected: for the files that exchange through it, and no others.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainers/ranks/exchange_clock.h"
#include "trainers/ranks/groups.h"
#include "trainers/ranks/last_words.h"
#include "trainers/ranks/ranks.h"
#include "trainers/ranks/watch.h"

namespace octet {

/// A sum or maximum over the group, in place; on a GPU queued.
inline void add_up(const Group& group, const at::Tensor& tensor, c10d::ReduceOp::RedOpType how = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  group->allreduce(tensors, options)->wait();
}

/// Of a dense tensor of any layout, on which it works: all elements in the order of memory.
inline at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) throw promise_error("ranks: a tensor with holes cannot be exchanged");
  return tensor.as_strided({tensor.numel()}, {1});
}

/// To one other rank.
struct Link {
  Group group;
  int other = 0;            // its rank in the group
  int sent = 0, taken = 0;  // so far: Gloo tells messages by number
};

struct Ranks::Groups {
  /// Meets the others. `lost`: called by the watch, from its thread.
  Groups(const RankEnvironment& environment, at::Device on, std::chrono::milliseconds patience, Watch::Lost lost);
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

template <class Work>
void Ranks::with_others(const Work& work) {
  require_connected();
  try {
    work();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    lose_others(error);
  }
}

}  // namespace octet
