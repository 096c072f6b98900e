// A warp takes one group of a pixel, in three passes: its largest code, the sum, the quotients. The table comes with
// the launch and lies in shared memory, where every lane reads another entry.
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/softmax_int8/cuda_softmax_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;  // one entry of the table each
constexpr int kLanes = 32;
constexpr unsigned kAll = 0xFFFFFFFFu;

__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const __grid_constant__ SoftmaxShape s, const __grid_constant__ SoftmaxParams params,
                   CudaRounding rounding, unsigned warps, const void* x, void* y) {
  __shared__ int32_t exponential[kThreads];
  exponential[threadIdx.x] = params.exponential[threadIdx.x];
  __syncthreads();
  const unsigned warp = (blockIdx.x * kThreads + threadIdx.x) / kLanes;
  if (warp >= warps) return;
  wait_for_previous_kernel();
  const ptrdiff_t pixel = warp / s.groups;
  const int lane = threadIdx.x % kLanes, first = warp % s.groups * s.channels;
  const auto code = [&](int c) { return load_code(x, pixel * s.x_stride + first + c, params.x_is_signed); };
  int32_t largest = -128;
  for (int c = lane; c < s.channels; c += kLanes) largest = max(largest, code(c));
  for (int step = kLanes / 2; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(kAll, largest, step));
  int32_t sum = 0;
  for (int c = lane; c < s.channels; c += kLanes) sum += exponential[largest - code(c)];
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  const float divisor = static_cast<float>(sum);
  for (int c = lane; c < s.channels; c += kLanes) {
    const float share = __fdiv_rn(static_cast<float>(exponential[largest - code(c)]), divisor);
    const float t = __fmul_rn(share, params.multiplier);
    const ptrdiff_t at = pixel * s.y_stride + first + c;
    if (params.y.float_output) {
      static_cast<float*>(y)[at] = t;
    } else {
      static_cast<uint8_t*>(y)[at] = static_cast<uint8_t>(rounding(t));
    }
  }
}

}  // namespace

void cuda_softmax_int8(const SoftmaxShape& s, const SoftmaxParams& params, const void* x, void* y, CudaStream stream) {
  const unsigned threads = thread_count(static_cast<long>(s.pixels) * s.groups * kLanes, "softmax");
  launch_overlapped(softmax_kernel, blocks_for(threads, kThreads), kThreads, 0, stream, s, params,
                    CudaRounding(params.y), threads / kLanes, x, y);
  check_launch("softmax");
}

}  // namespace octet::kernels
