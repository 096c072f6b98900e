// The gradients of an activation's learned range on the GPU: passes that need every gradient anyway write partial sums,
// which one block a sum adds up, always in the same order.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"
#include "kernels/fake_quantize/learned_range.h"
#include "kernels/quantize.h"

namespace octet::kernels {

/// A LearnedRange in device memory, read when a kernel runs.
struct LearnedPointers {
  RangeRule rule = RangeRule::lsq;
  const float* value = nullptr;   ///< null: nothing learns
  const float* offset = nullptr;  ///< of lsq_plus

  OCTET_HOST_DEVICE bool any() const { return value != nullptr; }
  OCTET_HOST_DEVICE LearnedRange range() const { return {rule, *value, offset != nullptr ? *offset : 0}; }
};

/// Pointers on the device.
struct ScaleGradient {
  RangeRule rule = RangeRule::lsq;
  const int16_t* slopes = nullptr;  ///< [count], as written by cuda_fake_quantize
  float* parts = nullptr;           ///< one a block and sum, needed while it runs: those of dscale, then of doffset
  float* dscale = nullptr;          ///< written: of the scale or width; null: nothing learns, nothing else here is read
  float* doffset = nullptr;         ///< written; null: no offset learns
  long values = 1;                  ///< N of learned_scale.h
  const QParams* device_qparams = nullptr;  ///< codes and zero point, read when the kernel runs; null: `qparams`
  QParams qparams;

  int sums() const { return (dscale != nullptr ? 1 : 0) + (doffset != nullptr ? 1 : 0); }
  OCTET_HOST_DEVICE EndSlopes ends() const {
    return EndSlopes(rule, dscale != nullptr && device_qparams != nullptr ? *device_qparams : qparams);
  }
};

/// *dscale = the sum of parts[0 .. count), *doffset that of parts[count .. 2 count), times range_gradient_factor().
void cuda_sum_scale_gradient(const ScaleGradient& work, int count, CudaStream stream);

}  // namespace octet::kernels
