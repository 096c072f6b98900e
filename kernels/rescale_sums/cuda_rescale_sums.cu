#include "kernels/cuda_launch.h"
#include "kernels/rescale_sums/cuda_rescale_sums.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread a result.
__global__ void rescale_sums_kernel(RescaleSumsShape shape, CodeOutput out, const int32_t* __restrict__ sums,
                                    const float* __restrict__ multiplier, const float* __restrict__ bias,
                                    void* __restrict__ y) {
  const long index = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= shape.rows * shape.channels) return;
  const long row = index / shape.channels;
  const int k = static_cast<int>(index % shape.channels);
  const float t = rescale(sums[row * shape.sum_stride + k], multiplier[k], bias[k]);
  const long at = row * shape.out_stride + k;
  if (out.float_output) {
    static_cast<float*>(y)[at] = t;
  } else {
    static_cast<uint8_t*>(y)[at] = static_cast<uint8_t>(round_code(t, out.zero_point, out.clamp_min, out.clamp_max));
  }
}

}  // namespace

void cuda_rescale_sums(const RescaleSumsShape& shape, const CodeOutput& out, const int32_t* sums,
                       const float* multiplier, const float* bias, void* y, CudaStream stream) {
  rescale_sums_kernel<<<blocks_for(shape.rows * shape.channels, kThreads), kThreads, 0, stream>>>(shape, out, sums,
                                                                                                  multiplier, bias, y);
  check_launch("rescale_sums");
}

}  // namespace octet::kernels
