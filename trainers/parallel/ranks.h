// SPDX-License-Identifier: Apache-2.0
// Several processes (ranks) that train one network: one for each GPU (NCCL), or on CPUs (Gloo), on one host or many.
// They exchange tensors through LibTorch's c10d.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "trainers/parallel/environment.h"

namespace octet {

/// Another rank ended or hangs. The message says which, and why if that is known.
class OthersLost : public Error {
 public:
  explicit OthersLost(const std::string& message) : Error(ExitCode::promise, message) {}
};

/// Prints the reason on stderr and ends the process with exit code 1, whatever its other threads do.
[[noreturn]] void end_process(const std::string& why);

/// The connection to the other ranks. All ranks call the same members in the same order. If another rank does not reach
/// a member because it ended or hangs, the member throws OthersLost after `patience`, or at once if the connection is
/// closed. On GPUs it calls `end` instead: a recorded CUDA graph may be waiting for that rank, and destroying the graph
/// would wait, too. `end` is also called, from another thread, when another rank's process stops or vanishes
/// (trainers/parallel/lost_ranks.h).
class Ranks {
 public:
  struct Faults {
    std::chrono::milliseconds patience{20'000};
    std::function<void(const std::string& why)> end = end_process;
    std::optional<int> longest_step;  ///< in seconds; empty: 60 on a GPU, no limit on CPUs, where all waits time out
  };

  /// Meets the others. agreement: a text that must be equal on all ranks, such as versions and the recipe's hash.
  /// Throws Error(usage) if the port is in use or a line of a rank's agreement differs; Error(promise) if not all ranks
  /// came within ten minutes.
  Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement);
  Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement, Faults faults);
  ~Ranks();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  int local_size() const { return environment_.local_size; }
  bool first() const { return environment_.rank == 0; }  ///< this rank writes the files and prints

  // Tensors on the device, dense, of any layout. On a GPU these are queued in the current stream, so that a CUDA graph
  // can record them.

  /// Sums elementwise over all ranks, in place and in the same order everywhere: all ranks get the same bits.
  void sum(const std::vector<at::Tensor>& tensors);

  /// Makes teams of the ranks whose numbers modulo `teams` are equal; `teams` divides size(). Later calls do nothing.
  void make_teams(int teams);
  enum class Among { all, team };

  /// Returns [size, ...]: every rank's tensor; all have the same shape. On a GPU it does not wait for exchanges that
  /// are under way. It is small and called often, so exchange_seconds() does not count it.
  at::Tensor gather(const at::Tensor& mine);

  /// An exchange that runs while this process and its GPU go on. All ranks start and finish exchanges in one order.
  struct Exchange;
  using ExchangePointer = std::shared_ptr<Exchange>;
  /// Starts sum() of one tensor over all ranks or this one's team, after the work that the current stream has queued so
  /// far. Nobody may touch the tensor until finish(). A CUDA graph that records the start must record the finish().
  ExchangePointer start_sum(const at::Tensor& tensor, Among among = Among::all);
  void finish(const std::vector<ExchangePointer>& exchanges);  ///< on a GPU the current stream waits, not the host

  /// Connects two ranks for start_swap(); both call it, a rank with several links that to the smallest rank first.
  /// Later calls do nothing.
  void link(int other);
  /// Starts sending `out` to `other` and receiving `in` from it; either may be undefined. `in` gets the memory layout
  /// of what was sent. Both ends start the swaps of their link in one order; different links run concurrently.
  ExchangePointer start_swap(int other, const at::Tensor& out, const at::Tensor& in);

  /// Copies the tensors of rank `from` into these, in place.
  void copy_from(int from, const std::vector<at::Tensor>& tensors);

  /// Limits how long a step may take: while one is due, `end` is called unless a step ends within `longest_step`. GPUs
  /// that wait for each other would otherwise wait forever. The first `first` steps may take five times as long: they
  /// set up NCCL and cuDNN. Does nothing if `ranks` is null.
  class Steps {
   public:
    Steps(Ranks* ranks, long first) : ranks_(ranks), first_(first) {}
    ~Steps() { none_due(); }
    Steps(const Steps&) = delete;
    Steps& operator=(const Steps&) = delete;
    void begins() { due(); }  ///< call it before launching a step
    void ended();             ///< call it for each step that ended, also when the host waits for several
    void none_due();          ///< until the next begins()

   private:
    void due();

    Ranks* const ranks_;
    const long first_;
    long ended_ = 0;
  };

  /// While one lives, it determines what happens when others are lost: `cure` ("; to go on: ...", or "") is added to
  /// the message, and `tell` is called before `end`. `tell` must not throw, may be called from any thread and is given
  /// up after kToTell. Does nothing if `ranks` is null.
  class Parting {
   public:
    using Tell = std::function<void(const std::string& why)>;
    Parting(Ranks* ranks, std::string cure, Tell tell);
    ~Parting();  ///< waits for a call of `tell` that is running
    Parting(const Parting&) = delete;
    Parting& operator=(const Parting&) = delete;

   private:
    Ranks* const ranks_;
  };

  /// Returns the seconds that this rank, or its streams on a GPU, has waited so far for sums and swaps of tensors, and
  /// so for slower ranks. Waits for the GPU.
  double exchange_seconds() const;

  // Host data. These wait on the host.

  bool any(bool mine);                                ///< whether it is true on some rank
  std::vector<double> sum(std::vector<double> mine);  ///< elementwise over all ranks
  /// Returns every rank's bytes, by rank. Waits for ranks that compute or measure as long as their processes live.
  std::vector<std::vector<uint8_t>> gather(const std::vector<uint8_t>& mine);
  std::string from_first(const std::string& text);  ///< rank 0's text
  /// Copies rank 0's values into CPU tensors that have the same names and shapes on all ranks.
  void copy_from_first(std::map<std::string, at::Tensor>& tensors);
  /// Throws Error(promise) naming the first tensor whose bits are not equal on all ranks. what: "after epoch 3".
  void require_same(const std::map<std::string, at::Tensor>& tensors, const std::string& what);

  void meet();   ///< waits until all ranks are here
  void leave();  ///< meets for the last time, then closes all connections
  /// Tells the others why this rank ends; nothing may be called after it. Returns true if rank 0 ends for the same
  /// reason and prints it.
  bool fail(const std::string& reason);

 private:
  struct Groups;
  template <class Work>
  void with_others(const Work& work);
  void require_connected() const;
  [[noreturn]] void lose_others(const std::exception& error);
  std::string stops_because(const std::string& why);
  void end(const std::string& why);
  std::optional<int> longest_step() const;

  const RankEnvironment environment_;
  const Faults faults_;
  std::mutex parting_;
  std::string cure_;
  Parting::Tell tell_;
  std::unique_ptr<Groups> groups_;  // last: its watch calls end()
};

}  // namespace octet
