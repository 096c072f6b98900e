// SPDX-License-Identifier: Apache-2.0
// A training step as one launch: recorded once as a CUDA graph, then replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

namespace octet {

/// What is done with steps of several sizes: which are launched, when one is recorded, and which recordings are dropped
/// for it. All recordings share one memory, which is that of the largest: smaller ones find it free, since no step
/// reads what another allocated, but a larger one would take memory of its own beside theirs. So they go when it comes.
class StepPlans {
 public:
  /// warm_ups: the launches of a size before it is recorded. alone: false where other processes do the same steps, each
  /// with a GPU of its own: what they record must not depend on one GPU's free memory, and has_room() is not asked.
  explicit StepPlans(int warm_ups, bool alone) : warm_ups_(warm_ups), cramped_(!alone) {}

  struct Plan {
    enum class Step { launch, record, replay } step = Step::launch;
    bool drop = false;  ///< all recordings, before the step
  };
  /// Returns what to do with the next step, of that size. A launched step has memory of its own beside the recordings.
  /// has_room(times): whether there is so much, as a multiple of what the recordings have. Where there is not, they are
  /// dropped, and there are none from then on before every size that came had its warm-ups.
  Plan next(int64_t size, const std::function<bool(double times)>& has_room);

  /// Takes back that the size is recorded.
  void failed(int64_t size) { recorded_.erase(size); }

 private:
  bool all_warm() const;

  int warm_ups_;
  bool cramped_ = false;             // there was no room once
  std::map<int64_t, int> launched_;  // of each size that came, up to warm_ups_
  std::set<int64_t> recorded_;
};

/// Saves launches: a small network takes longer to launch its few hundred kernels than to run them.
class StepGraph {
 public:
  /// capture: with false, and in a build without CUDA, run() only calls. alone: as StepPlans has it.
  explicit StepGraph(bool capture, bool alone = true);
  ~StepGraph();

  /// Runs a step. `launches` must do the same work on the same memory whenever `mode` and `size` are the same; it may
  /// allocate, but neither wait for the GPU nor read from it. In a new mode it is called for kWarmUps steps, in which
  /// cuDNN and others initialize, recorded in the next, and from then on replayed without being called.
  ///
  /// size: how much a step works on, such as the pixels of its batch. Steps of several sizes may come in any order and
  /// have warm-ups and a recording each (StepPlans).
  void run(int mode, const std::function<void()>& launches, int64_t size = 0);

  void forget();  ///< releases the recordings' memory; from now on run() only calls

  static constexpr int kWarmUps = 3;

 private:
  struct Recordings;
  std::unique_ptr<Recordings> recordings_;  // null: not captured
};

}  // namespace octet
