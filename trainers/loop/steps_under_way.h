// Steps between their launch and the news of their end, and how long the next end may take.
#pragma once

#include <optional>

#include "src/model/step_graph.h"
#include "trainers/loop/totals.h"
#include "trainers/ranks/ranks.h"

namespace octet {

class StepsUnderWay {
 public:
  StepsUnderWay(at::Device device, Ranks* ranks) : totals_(device), due_(ranks, StepGraph::kWarmUps + 1) {}

  void epoch_begins() { totals_.epoch_begins(); }
  /// The host is about to launch one: from now on one must end in time, or this process does (Ranks::Steps).
  void begins() {
    due_.begins();
    totals_.batch_is_ready();
  }
  void was_launched(long step, const at::Tensor& totals) { totals_.step_was_launched(step, totals); }
  /// As TotalsReader::next(): the oldest that ended and was not returned yet.
  std::optional<StepTotals> next(bool wait) {
    std::optional<StepTotals> totals = totals_.next(wait);
    if (totals) due_.ended();
    return totals;
  }
  void epoch_ends() { due_.none_due(); }  ///< saving and validation take the time they take

 private:
  TotalsReader totals_;
  Ranks::Steps due_;
};

}  // namespace octet
