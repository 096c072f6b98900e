#include "trainers/ranks/exchange_clock.h"

#include <ATen/ops/zeros.h>

#if OCTET_CUDA
#include <c10/cuda/CUDAStream.h>

#include "kernels/clock/cuda_clock.h"
#endif

namespace octet {

#if OCTET_CUDA
namespace {

kernels::StreamClock* clock_of(const at::Tensor& tensor) {
  return reinterpret_cast<kernels::StreamClock*>(tensor.data_ptr<int64_t>());
}

CudaStream stream_of(const at::Tensor& tensor) { return c10::cuda::getCurrentCUDAStream(tensor.get_device()).stream(); }

}  // namespace
#endif

ExchangeClock::ExchangeClock(at::Device device) {
  if (device.is_cuda()) on_gpu_ = at::zeros({2}, at::TensorOptions(device).dtype(at::kLong));
}

void ExchangeClock::start() {
#if OCTET_CUDA
  if (on_gpu_.defined()) return kernels::cuda_clock_start(clock_of(on_gpu_), stream_of(on_gpu_));
#endif
  began_ = std::chrono::steady_clock::now();
}

void ExchangeClock::stop() {
#if OCTET_CUDA
  if (on_gpu_.defined()) return kernels::cuda_clock_stop(clock_of(on_gpu_), stream_of(on_gpu_));
#endif
  time_ += std::chrono::steady_clock::now() - began_;
}

double ExchangeClock::seconds() const {
  if (on_gpu_.defined()) return 1e-9 * static_cast<double>(on_gpu_[1].item<int64_t>());
  return std::chrono::duration<double>(time_).count();
}

}  // namespace octet
