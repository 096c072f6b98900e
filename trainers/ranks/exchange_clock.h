// How long a rank waited for its exchanges, for slower ranks included: on a GPU the sum over streams, of which one may
// compute while another waits.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <map>

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
  at::Tensor& of_stream();  // the current one

  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::duration time_{};
  const at::Device device_;
  std::map<void*, at::Tensor> on_gpu_;  // by stream a kernels::StreamClock; none on the CPU
};

}  // namespace octet
