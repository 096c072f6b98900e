// Several processes that train one network: one a GPU (NCCL), or on CPUs (Gloo), over one host or many. What they
// exchange goes through LibTorch's c10d.
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

#include "src/common/error.h"
#include "trainers/ranks/environment.h"

namespace octet {

/// Another rank ended or hangs. Says which, and why where that is known.
class OthersLost : public Error {
 public:
  explicit OthersLost(const std::string& message) : Error(ExitCode::promise, message) {}
};

/// Says why on stderr and ends the process with exit code 1, whatever its other threads do.
[[noreturn]] void end_process(const std::string& why);

/// All ranks call the same members in the same order. A member that another rank does not reach, because it ended or
/// hangs, throws OthersLost when `patience` is over; at once where its connection is closed. On GPUs it calls `end`
/// instead: what is recorded in a CUDA graph may wait for that rank, and taking it down would wait, too. `end` also
/// comes, from another thread, when another rank's process stops or vanishes (trainers/ranks/watch.h).
class Ranks {
 public:
  struct Faults {
    std::chrono::milliseconds patience{20'000};
    std::function<void(const std::string& why)> end = end_process;
    std::optional<int> longest_step;  ///< seconds; none: 60 on a GPU, and on CPUs no limit, since all waits there end
  };

  /// Meets the others. `agreement`: what must be the same text everywhere, such as versions and the recipe's hash.
  /// Throws Error(usage): the port is in use, or a rank's agreement differs (each line of it is compared);
  /// Error(promise): not all came in ten minutes.
  Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement);
  Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement, Faults faults);
  ~Ranks();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  int local_size() const { return environment_.local_size; }
  bool first() const { return environment_.rank == 0; }  ///< the one that writes files and speaks

  /// In place, elementwise over all ranks, in the same order everywhere: the results have the same bits. Dense tensors
  /// of any layout on the device; on a GPU queued in the current stream, so that a CUDA graph can record it.
  void sum(const std::vector<at::Tensor>& tensors);

  /// Ranks whose numbers modulo `teams` are the same are a team; `teams` divides size(). All call it together; later
  /// calls do nothing.
  void make_teams(int teams);
  enum class Among { all, team };

  /// [size, ...] of every rank's tensor, of one shape everywhere, on the device; queued as sum() is. On a GPU it waits
  /// for no exchange that is under way. It is small and often called: exchange_seconds() does not count it.
  at::Tensor gather(const at::Tensor& mine);

  /// What is under way while this process, and its GPU, go on. All ranks start and finish alike, in one order.
  struct Exchange;
  using ExchangePointer = std::shared_ptr<Exchange>;
  /// sum() of one dense tensor, over all ranks or this one's team, which nobody touches until finish(). It begins after
  /// what the current stream does so far; a CUDA graph that records one must record its finish().
  ExchangePointer start_sum(const at::Tensor& tensor, Among among = Among::all);
  void finish(const std::vector<ExchangePointer>& exchanges);  ///< on a GPU the current stream waits, not the host

  /// Before start_swap(): both ends of a link call it, whoever has several first that to the smallest rank. Later calls
  /// do nothing.
  void link(int other);
  /// One tensor to `other` and one from it, each of which may be undefined; dense. What comes lies in memory as what
  /// was sent did. Both ends start the swaps of their link in one order; swaps of different links run side by side.
  ExchangePointer start_swap(int other, const at::Tensor& out, const at::Tensor& in);

  /// In place: the values that rank `from` has. Dense tensors on the device.
  void copy_from(int from, const std::vector<at::Tensor>& tensors);

  /// While a step is due `end` comes unless one ends within `longest_step`: GPUs that wait for each other wake nobody.
  /// Until `first` steps ended it is five times as long: they set up NCCL and cuDNN. With null it does nothing.
  class Steps {
   public:
    Steps(Ranks* ranks, long first) : ranks_(ranks), first_(first) {}
    ~Steps() { none_due(); }
    Steps(const Steps&) = delete;
    Steps& operator=(const Steps&) = delete;
    void begins() { due(); }  ///< the host is about to launch one
    void ended();             ///< each: many may be on their way when the host waits for all of them
    void none_due();          ///< until the next begins

   private:
    void due();

    Ranks* const ranks_;
    const long first_;
    long ended_ = 0;
  };

  /// While one lives: what this rank says behind why it stops when others are lost, and who is told before `end`, which
  /// throws nothing, within kToTell or not at all. From any thread. With null ranks it does nothing.
  class Parting {
   public:
    using Tell = std::function<void(const std::string& why)>;
    Parting(Ranks* ranks, std::string cure, Tell tell);  ///< `cure`: "; to go on: ...", or ""
    ~Parting();                                          ///< waits for one that is called now
    Parting(const Parting&) = delete;
    Parting& operator=(const Parting&) = delete;

   private:
    Ranks* const ranks_;
  };

  /// That this rank, on a GPU its stream, has waited for sums and swaps of tensors so far, and so for slower ranks.
  /// Waits for the GPU.
  double exchange_seconds() const;

  // These wait, on the host.
  bool any(bool mine);
  std::vector<double> sum(std::vector<double> mine);
  /// Every rank's bytes, by rank. Waits for ranks that measure, or work, for as long as their processes live.
  std::vector<std::vector<uint8_t>> gather(const std::vector<uint8_t>& mine);
  std::string from_first(const std::string& text);           ///< rank 0's
  void copy_from_first(std::map<std::string, at::Tensor>&);  ///< values of CPU tensors of the same names and shapes
  void meet();                                               ///< until all are here
  void leave();                                              ///< the last: meets, then closes all connections
  /// This rank ends: tells the others why; nothing may be called after it. True: rank 0 ends for the very same reason,
  /// and says it.
  bool fail(const std::string& reason);
  /// Throws Error(promise) naming the first tensor whose bits are not the same on all ranks. `what`: "after epoch 3".
  void require_same(const std::map<std::string, at::Tensor>& tensors, const std::string& what);

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
  std::unique_ptr<Groups> groups_;  // the last: its watch calls end()
};

}  // namespace octet
