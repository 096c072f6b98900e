// SPDX-License-Identifier: Apache-2.0
// Fake quantization of eight neighbouring values in a thread of a pass that has other work too, without dividing, and
// the function that may follow it. Include it in .cu files only.
#pragma once

#include <cstring>

#include "kernels/core/values.cuh"
#include "kernels/training/fake_quantize.h"
#include "kernels/training/norm_quantize.h"

namespace octet::kernels {

/// Returns the qparams of some work as of now. Without `?:`, which would copy all of `work` to local memory.
template <class Work>
__device__ QParams qparams_of(const Work& work) {
  QParams q = work.qparams;
  if (work.device_qparams != nullptr) q = *work.device_qparams;
  return q;
}

/// Rounds sums to codes. Codes are counted in steps from the zero point here. NaN becomes the lowest.
struct Rounder {
  static constexpr int kValues = 8;
  static constexpr float kRound = 0x1.8p23f;  // adding it leaves no bits for fractions

  RoundedQuotient quotient;
  float lo, hi;  ///< the codes' bounds, which include those of the activation: rint and division are monotone
  float lowest;  ///< quant_min in steps
  Clamp activation;

  __device__ Rounder(const QParams& q, const Clamp& of)
      : quotient(q.scale),
        lo(fmaxf(static_cast<float>(q.quant_min - q.zero_point), rintf(of.lo / q.scale))),
        hi(fminf(static_cast<float>(q.quant_max - q.zero_point), rintf(of.hi / q.scale))),
        lowest(static_cast<float>(q.quant_min - q.zero_point)),
        activation(of) {}

  /// Replaces sums by their codes and returns a bit for each through which the gradient passes.
  __device__ unsigned codes(float (&sum)[kValues]) const {
    float steps[kValues], zero = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float estimate = sum[i] * quotient.inverse;
      steps[i] = quotient.corrected(sum[i], estimate);
      zero = fmaf(estimate, 0.0f, zero);  // NaN for NaN and infinity
    }
    if (zero != 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const float estimate = sum[i] * quotient.inverse;
        if (!(fabsf(estimate) < INFINITY)) steps[i] = estimate;
      }
    }
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float rounded = (steps[i] + kRound) - kRound, clamped = fminf(fmaxf(rounded, lo), hi);
      if (rounded == clamped && activation.passes(sum[i])) bits |= 1u << i;
      sum[i] = clamped;
    }
    return bits;
  }

  /// Replaces sums by the codes' values and returns a bit for each through which the gradient passes.
  __device__ unsigned round(float (&sum)[kValues]) const {
    const unsigned bits = codes(sum);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] = quotient.scale * sum[i];
    return bits;
  }

  /// Returns the code of a sum as codes() does, but not of NaN and infinity, whose gradient does not pass.
  __device__ float code(float sum) const {
    const float steps = quotient.corrected(sum, sum * quotient.inverse);
    return fminf(fmaxf((steps + kRound) - kRound, lo), hi);
  }

  /// Returns the place of a code in a FunctionTable.
  __device__ unsigned place(float code) const { return __float_as_uint(code + (kRound - lowest)) & 0xff; }
};

/// One of a FunctionTable's columns in shared memory, for kernels whose blocks have at least 256 threads. All threads
/// of a block make it together.
template <class T>
struct SharedColumn {
  const T* values;

  __device__ explicit SharedColumn(const float* column) {
    __shared__ T copy[256];
    if (threadIdx.x < 256) copy[threadIdx.x] = narrow<T>(column[threadIdx.x]);
    __syncthreads();
    values = copy;
  }
};

}  // namespace octet::kernels
