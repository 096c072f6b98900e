// What is learned after training is the same bits each time, on a GPU too.
#pragma once

#include <ATen/Context.h>

namespace octet {

/// While it lives, cuDNN computes the same bits each time, and tries nothing out for that.
class SameConvolutions {
 public:
  SameConvolutions()
      : benchmark_(at::globalContext().benchmarkCuDNN()), deterministic_(at::globalContext().deterministicCuDNN()) {
    at::globalContext().setBenchmarkCuDNN(false);
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~SameConvolutions() {
    at::globalContext().setBenchmarkCuDNN(benchmark_);
    at::globalContext().setDeterministicCuDNN(deterministic_);
  }
  SameConvolutions(const SameConvolutions&) = delete;
  SameConvolutions& operator=(const SameConvolutions&) = delete;

 private:
  bool benchmark_, deterministic_;
};

}  // namespace octet
