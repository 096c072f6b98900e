// How long the exchanges of a rank took, waiting for slower ranks included.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>

namespace octet {

class ExchangeClock {
 public:
  explicit ExchangeClock(at::Device device);

  /// `work` waits for its exchange, or on a GPU queues it in the current stream, which may be recorded.
  template <class Work>
  void time(const Work& work) {
    start();
    work();
    stop();
  }
  double seconds() const;  ///< of all so far; waits for the GPU

 private:
  void start();
  void stop();

  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::duration time_{};
  at::Tensor on_gpu_;  // a kernels::StreamClock; undefined on the CPU
};

}  // namespace octet
