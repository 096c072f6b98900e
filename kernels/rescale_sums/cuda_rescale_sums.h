// The end of a linear layer whose sums another library has made: kernels/quantize.h's rule on int32 sums.
#pragma once

#include <cstdint>

#include "kernels/codes.h"
#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// sums: int32 [rows, sum_stride]; y: codes [rows, out_stride], or float32 with out.float_output.
struct RescaleSumsShape {
  long rows = 0;
  int channels = 0, sum_stride = 0, out_stride = 0;
};

/// y = clamp(rint(fma(float(sum), multiplier[k], bias[k])) + zero point), or the fma itself as float32. All pointers on
/// the device; multiplier and bias [channels].
void cuda_rescale_sums(const RescaleSumsShape& shape, const CodeOutput& out, const int32_t* sums,
                       const float* multiplier, const float* bias, void* y, CudaStream stream);

}  // namespace octet::kernels
