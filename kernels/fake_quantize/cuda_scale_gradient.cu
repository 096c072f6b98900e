#include "kernels/fake_quantize/cuda_scale_gradient.h"

#include "kernels/cuda_launch.h"
#include "kernels/fake_quantize/learned_range.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 1024;

/// A block a sum.
__global__ void __launch_bounds__(kThreads) sum_scale_gradient_kernel(ScaleGradient work, int count) {
  __shared__ double sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const float* parts = work.parts + static_cast<long>(blockIdx.x) * count;
  double total = 0;
  for (int i = thread; i < count; i += kThreads) total += parts[i];
  sums[thread] = total;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread != 0) return;
  const QParams q = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  float* const gradient = blockIdx.x == 0 ? work.dscale : work.doffset;
  *gradient = static_cast<float>(sums[0] * range_gradient_factor(work.rule, work.values, q));
}

}  // namespace

void cuda_sum_scale_gradient(const ScaleGradient& work, int count, CudaStream stream) {
  sum_scale_gradient_kernel<<<work.sums(), kThreads, 0, stream>>>(work, count);
  check_launch("sum_scale_gradient");
}

}  // namespace octet::kernels
