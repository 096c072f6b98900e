#include "trainers/ranks/exchange_clock.h"

#include <ATen/ops/zeros.h>

#if OCTET_CUDA
#include "kernels/clock/cuda_clock.h"
#include "src/torch/current_stream.h"
#endif

namespace octet {

ExchangeClock::ExchangeClock(at::Device device) : device_(device) {}

#if OCTET_CUDA
namespace {

kernels::StreamClock* clock_of(const at::Tensor& tensor) {
  return reinterpret_cast<kernels::StreamClock*>(tensor.data_ptr<int64_t>());
}

}  // namespace

at::Tensor& ExchangeClock::of_stream() {
  at::Tensor& clock = on_gpu_[current_stream(device_)];
  if (!clock.defined()) clock = at::zeros({2}, at::TensorOptions(device_).dtype(at::kLong));
  return clock;
}
#endif

void ExchangeClock::start() {
#if OCTET_CUDA
  if (device_.is_cuda()) return kernels::cuda_clock_start(clock_of(of_stream()), current_stream(device_));
#endif
  began_ = std::chrono::steady_clock::now();
}

void ExchangeClock::stop() {
#if OCTET_CUDA
  if (device_.is_cuda()) return kernels::cuda_clock_stop(clock_of(of_stream()), current_stream(device_));
#endif
  time_ += std::chrono::steady_clock::now() - began_;
}

double ExchangeClock::seconds() const {
  int64_t nanoseconds = 0;
  for (const auto& [stream, clock] : on_gpu_) nanoseconds += clock[1].item<int64_t>();
  return 1e-9 * static_cast<double>(nanoseconds) + std::chrono::duration<double>(time_).count();
}

}  // namespace octet
