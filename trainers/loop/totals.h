// How an epoch goes, read without making the GPU wait: the sums of each step reach the host a few steps later.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

namespace octet {

/// What is known once a step is done.
struct StepTotals {
  long step = 0;  ///< its number in the epoch, from 0
  // Sums of the epoch, this step included.
  double loss_sum = 0;           ///< of the batches' mean losses; not finite from the first such loss on
  double correct = 0;            ///< pictures that are right; of pixels' labels parts of pictures
  double cross_entropy_sum = 0;  ///< the same as loss_sum without label smoothing
  static constexpr int kSums = 3;
  double idle_seconds = 0;  ///< GPU: between the end of the step before and this one's first operator
};

class TotalsReader {
 public:
  explicit TotalsReader(at::Device device);
  ~TotalsReader();

  void epoch_begins();
  void batch_is_ready();  ///< the next operator launched is the step's first
  /// `totals`: float64 [kSums], in the order of StepTotals. On a GPU an asynchronous copy to page-locked memory.
  void step_was_launched(long step, const at::Tensor& totals);

  /// The oldest step that is done and was not returned yet. Waits for it if `wait`, or when the host is kMostAhead
  /// steps ahead of the GPU; none: nothing is done, or with `wait` nothing was launched.
  std::optional<StepTotals> next(bool wait);

  static constexpr size_t kMostAhead = 8;

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;      // null: trains on the CPU, where
  std::optional<StepTotals> done_;  // a step is done when it was launched
};

}  // namespace octet
