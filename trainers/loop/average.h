// Exponential moving average of weights and BatchNorm buffers.
#pragma once

#include <functional>

#include "src/model/model.h"

namespace octet {

class WeightAverage {
 public:
  /// Starts from a copy of the weights. 0 < decay < 1.
  WeightAverage(const Weights& weights, double decay);

  /// 1 - d, with d = min(decay, (1 + t) / (10 + t)) at update t = 0, 1, ...: the first updates follow the weights
  /// quickly instead of holding on to the initial ones. Worked: decay 0.9, t = 0: d = 0.1, rate 0.9.
  double rate(long t) const;

  /// average += rate * (weights - average). `rate`: a scalar tensor on the weights' device. Worked: rate 0.9, average
  /// 1, weights 2: 1.9.
  void update(const at::Tensor& rate);

  const Weights& average() const { return average_; }  ///< the tensors themselves: copy into them to restore

  void apply();  ///< copies the averages into the weights, for good

  /// Calls `body` while the weights hold the averages (same storage as before, so every model that shares them sees
  /// it). Not a guard: on a GPU that failed in `body` changing back throws too, as no destructor may.
  void while_in_place(const std::function<void()>& body);

 private:
  void exchange();

  Weights weights_, average_;  // weights_ shares the trainer's tensors
  double decay_;
};

}  // namespace octet
