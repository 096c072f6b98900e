// SPDX-License-Identifier: Apache-2.0
// Steps that the GPU has not finished yet. Their sums reach the host a few steps later, without making the GPU wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "trainers/parallel/ranks.h"

namespace octet {

/// What is known once a step has ended. The sums are of the epoch, this step included.
struct StepTotals {
  long step = 0;                 ///< its number in the epoch, from 0
  double loss_sum = 0;           ///< of the batches' mean losses; not finite from the first such loss on
  double correct = 0;            ///< Objective::Judged::right
  double cross_entropy_sum = 0;  ///< loss_sum without label smoothing
  static constexpr int kSums = 3;
  double idle_seconds = 0;  ///< GPU: from the end of the step before to the first operator of this one
};

/// Follows steps from their launch to their end. On a CPU a step has ended when it was launched. With ranks this
/// process ends if a step does not end in time (Ranks::Steps).
class StepsUnderWay {
 public:
  StepsUnderWay(at::Device device, Ranks* ranks);
  ~StepsUnderWay();

  void epoch_begins();
  void begins();  ///< call it before a launch: the next operator is the step's first
  /// totals: float64 [kSums], in the order of StepTotals. A GPU copies them to page-locked memory asynchronously.
  void was_launched(long step, const at::Tensor& totals);

  /// Returns the oldest step that has ended and was not returned yet. Waits for it if `wait` is set or if the host is
  /// kMaxAhead steps ahead of the GPU. Empty if none has ended or, with `wait`, if none is left.
  std::optional<StepTotals> next(bool wait);

  void epoch_ends() { due_.none_due(); }  ///< saving and validation may take any time

  static constexpr size_t kMaxAhead = 8;

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;      // null on the CPU
  std::optional<StepTotals> done_;  // on the CPU: the step launched last, until it is returned
  Ranks::Steps due_;
};

}  // namespace octet
