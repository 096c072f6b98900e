// Exponential moving average of weights and BatchNorm buffers.
#pragma once

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

  /// While it lives, the weights hold the averages (same storage as before, so every model that shares them sees it).
  class Swap {
   public:
    explicit Swap(WeightAverage& average) : average_(average) { average_.exchange(); }
    ~Swap() { average_.exchange(); }
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    WeightAverage& average_;
  };

 private:
  void exchange();

  Weights weights_, average_;  // weights_ shares the trainer's tensors
  double decay_;
};

}  // namespace octet
