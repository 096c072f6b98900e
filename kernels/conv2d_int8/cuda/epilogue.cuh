// What every convolution kernel does with an accumulator, the bits of quantize.h:
//   t = fma(float(acc), multiplier[k], bias[k]);  t = fma(float(rq - zr), residual_multiplier, t);  y = round_code(t)
// Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/code_lookup.cuh"
#include "kernels/cuda_codes.cuh"

namespace octet::kernels {

struct CudaEpilogue {
  CudaRounding rounding;
  bool float_output, has_residual, residual_signed;
  int32_t residual_zero_point;
  float residual_multiplier;

  explicit CudaEpilogue(const Conv2dParams& p)
      : rounding(p.y),
        float_output(p.y.float_output),
        has_residual(p.has_residual),
        residual_signed(p.residual.is_signed),
        residual_zero_point(p.residual.zero_point),
        residual_multiplier(p.residual_multiplier) {}

  __device__ float add_residual(float t, int32_t code) const {
    return fmaf(static_cast<float>(code - residual_zero_point), residual_multiplier, t);
  }

  /// t, with code `index` of residual added if there is one.
  __device__ float with_residual(float t, const void* residual, ptrdiff_t index) const {
    return has_residual ? add_residual(t, load_code(residual, index, residual_signed)) : t;
  }
};

/// Ends one output: `index` is its element in y, `residual_index` the one in residual.
__device__ inline void finish_output(const CudaEpilogue& e, const CodeLookup& lookup, float t, const void* residual,
                                     ptrdiff_t residual_index, void* y, ptrdiff_t index) {
  t = e.with_residual(t, residual, residual_index);
  if (e.float_output) {
    static_cast<float*>(y)[index] = t;
  } else {
    const uint8_t code = static_cast<uint8_t>(e.rounding(t));
    static_cast<uint8_t*>(y)[index] = lookup.wanted() ? static_cast<uint8_t>(lookup.code(code)) : code;
  }
}

}  // namespace octet::kernels
