// The gradient of a learned scale on the GPU: passes that need every gradient anyway write partial sums, which one
// block adds up, always in the same order.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"
#include "kernels/quantize.h"

namespace octet::kernels {

/// Pointers on the device.
struct ScaleGradient {
  const int16_t* slopes = nullptr;          ///< [count], as written by cuda_fake_quantize
  float* parts = nullptr;                   ///< one a block, needed while it runs
  float* dscale = nullptr;                  ///< written; null: no scale learns, and nothing else here is read
  long values = 1;                          ///< N of learned_scale.h
  const QParams* device_qparams = nullptr;  ///< codes and zero point, read when the kernel runs; null: `qparams`
  QParams qparams;
};

/// *dscale = the sum of parts[0 .. count) times scale_gradient_factor().
void cuda_sum_scale_gradient(const ScaleGradient& work, int count, CudaStream stream);

}  // namespace octet::kernels
