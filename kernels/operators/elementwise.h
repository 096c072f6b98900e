// SPDX-License-Identifier: Apache-2.0
// Operators that compute each value by itself: requantize, add, mul and prelu (lookup: lookup.h). A concat is one
// requantize per input, each into its own channels of the output. The _reference functions are the definitions; the
// others give their bytes. Arithmetic: kernels/core/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// The shape of one image, [pixels, channels]. A stride is the number of elements from one pixel to the next, >=
/// channels.
struct ElementwiseShape {
  int pixels = 0, channels = 0;
  int x_stride = 0, other_stride = 0, y_stride = 0;
  bool y_is_slice = false;      ///< y is part of a wider tensor: only `channels` values of each pixel may be written
  bool other_is_pixel = false;  ///< other is one pixel [channels] per image, used for all pixels of x
};

/// t = float(xq - zx) * multiplier
struct RequantizeParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// t = float(xq - zx) * x_multiplier; t = fma(float(oq - zo), other_multiplier, t)
struct AddParams {
  CodeInput x, other;
  float x_multiplier = 0, other_multiplier = 0;
  CodeOutput y;
};

/// t = float((xq - zx) * (oq - zo)) * multiplier
struct MulParams {
  CodeInput x, other;
  float multiplier = 0;
  CodeOutput y;
};

/// t = float(xq - zx) * (xq < zx ? slopes[channel] : multiplier)
struct PreluParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// Compute one image on the CPU, by definition.
void requantize_int8_reference(const ElementwiseShape& shape, const RequantizeParams& params, const void* x, void* y);
void add_int8_reference(const ElementwiseShape& shape, const AddParams& params, const void* x, const void* other,
                        void* y);
void mul_int8_reference(const ElementwiseShape& shape, const MulParams& params, const void* x, const void* other,
                        void* y);
void prelu_int8_reference(const ElementwiseShape& shape, const PreluParams& params, const float* slopes, const void* x,
                          void* y);  ///< slopes: [channels]

/// Compute the pixels of `range` on the cpu engine's path `isa`; all tensors are uint8. When all strides are equal and
/// y is no slice, the lanes between channels and stride are written too.
void cpu_requantize_u8(CpuIsa isa, const ElementwiseShape& shape, const RequantizeParams& params, Range range,
                       const uint8_t* x, void* y);
void cpu_add_u8(CpuIsa isa, const ElementwiseShape& shape, const AddParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y);
void cpu_mul_u8(CpuIsa isa, const ElementwiseShape& shape, const MulParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y);
void cpu_prelu_u8(CpuIsa isa, const ElementwiseShape& shape, const PreluParams& params, const float* slopes,
                  Range range, const uint8_t* x, void* y);

/// The tensors of a batch on the device, [images, shape.pixels, stride].
struct CudaElementwiseData {
  int images = 1;
  const void* x = nullptr;
  const void* other = nullptr;  ///< for add and mul; [images, stride] with other_is_pixel
  void* y = nullptr;            ///< exactly `channels` values of each pixel are written
};

/// Compute a batch on the GPU. They are fast when strides and addresses are multiples of 16; then lanes between
/// channels and stride may be read. Throw Error(promise) when the launch fails.
void cuda_requantize_int8(const ElementwiseShape& shape, const RequantizeParams& params,
                          const CudaElementwiseData& data, CudaStream stream);
void cuda_add_int8(const ElementwiseShape& shape, const AddParams& params, const CudaElementwiseData& data,
                   CudaStream stream);
void cuda_mul_int8(const ElementwiseShape& shape, const MulParams& params, const CudaElementwiseData& data,
                   CudaStream stream);
/// slopes: float32 [x_stride] on the device; what stands behind `channels` is read and not used.
void cuda_prelu_int8(const ElementwiseShape& shape, const PreluParams& params, const float* slopes,
                     const CudaElementwiseData& data, CudaStream stream);

/// Sums of a linear layer that another library has computed: int32 [rows, sum_stride]. y is codes [rows, out_stride],
/// or float32 with out.float_output.
struct RescaleSumsShape {
  long rows = 0;
  int channels = 0, sum_stride = 0, out_stride = 0;
};

/// Writes y = clamp(rint(fma(float(sum), multiplier[k], bias[k])) + zero point), or the fma itself as float32. All
/// pointers are on the device; multiplier and bias are [channels].
void cuda_rescale_sums(const RescaleSumsShape& shape, const CodeOutput& out, const int32_t* sums,
                       const float* multiplier, const float* bias, void* y, CudaStream stream);

}  // namespace octet::kernels
