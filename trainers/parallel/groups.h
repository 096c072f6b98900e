// SPDX-License-Identifier: Apache-2.0
// How ranks meet, and what a rank holds while it is connected: LibTorch's store and process groups (c10d). Only for the
// files that exchange through them; others include ranks.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "trainers/parallel/environment.h"
#include "trainers/parallel/lost_ranks.h"
#include "trainers/parallel/ranks.h"

namespace octet {

using Group = c10::intrusive_ptr<c10d::Backend>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// Opens or joins the store of all ranks. Throws Error(usage) if the port is in use or who listens there does not
/// answer.
StorePointer open_store(const RankEnvironment& environment);
/// Joins the store from a launcher, which is not a rank. Null if nobody listens there or answers within seconds.
StorePointer visit_store(const std::string& address, int port);

/// Waits up to ten minutes for all ranks. The timeout of a group is shorter: it is meant for ranks that train, not for
/// those that are started by hand or wait in a queue.
void wait_until_all_came(const StorePointer& store, const RankEnvironment& environment);

// Groups. On CPUs all but host_group() and team_group() return `host` itself.

/// Returns a group of all ranks over Gloo, between the hosts' CPUs.
Group host_group(const StorePointer& store, const RankEnvironment& environment, std::chrono::milliseconds patience);

/// Returns the group of all ranks on their devices, over NCCL on GPUs.
Group device_group(const StorePointer& store, const RankEnvironment& environment, at::Device device, const Group& host);

/// Returns a second group of all ranks, whose exchanges do not wait for those of device_group().
Group gathering_group(const StorePointer& store, const RankEnvironment& environment, at::Device device,
                      const Group& host);

/// Returns the group of this rank and `other`, whose exchanges do not wait for those of other groups.
Group link_group(const StorePointer& store, const RankEnvironment& environment, int other, at::Device device,
                 const Group& host);

/// Returns the group, on the devices, of the ranks whose number modulo `teams` equals this one's.
Group team_group(const StorePointer& store, const RankEnvironment& environment, int teams, at::Device device,
                 std::chrono::milliseconds patience);

/// Measures how long a rank waited for exchanges, and so for slower ranks. On a GPU it is the sum over streams, one of
/// which may compute while another waits.
class ExchangeClock {
 public:
  explicit ExchangeClock(at::Device device);

  /// Runs `work`, which waits for its exchange or, on a GPU, queues the wait in the current stream. A CUDA graph can
  /// record it.
  template <class Work>
  void time(const Work& work) {
    start();
    work();
    stop();
  }
  double seconds() const;  ///< of all exchanges so far; waits for the GPU

 private:
  void start();
  void stop();
  at::Tensor& of_stream();  // clock of the current stream

  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::duration time_{};
  const at::Device device_;
  std::map<void*, at::Tensor> on_gpu_;  // a kernels::StreamClock by stream; empty on the CPU
};

/// Sums, or takes the maximum of, a tensor over the group, in place. Queued on a GPU.
inline void add_up(const Group& group, const at::Tensor& tensor, c10d::ReduceOp::RedOpType how = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  group->allreduce(tensors, options)->wait();
}

/// Returns a view of all elements of a dense tensor of any layout, in the order of memory.
inline at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) throw promise_error("ranks: a tensor with holes cannot be exchanged");
  return tensor.as_strided({tensor.numel()}, {1});
}

/// The connection to one other rank.
struct Link {
  Group group;
  int other = 0;            // the other's rank in this group
  int sent = 0, taken = 0;  // messages so far: Gloo distinguishes them by number
};

/// What a rank holds while it is connected.
struct Ranks::Groups {
  /// Meets the others. lost: called from a thread of the watch.
  Groups(const RankEnvironment& environment, at::Device on, std::chrono::milliseconds patience, Watch::Lost lost);

  /// Closes connections so that the others notice. GPU groups stay: their work may still run.
  void abandon() {
    if (!on_gpu) {
      links.clear();
      team.reset();
      gathering.reset();
      device.reset();
    }
    host.reset();
  }

  /// Calls work(group) for each group over NCCL.
  template <class Work>
  void each_on_gpu(const Work& work) {
    for (auto& [other, link] : links) work(link.group);
    for (const Group& group : {team, gathering, device})
      if (group) work(group);
  }

  const at::Device where;
  const bool on_gpu;
  c10::intrusive_ptr<c10d::Store> store;
  Group host, device;
  Group team;                 // null before make_teams()
  Group gathering;            // null before the first gather(); does not wait for sums under way
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
