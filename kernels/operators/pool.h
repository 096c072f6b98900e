// SPDX-License-Identifier: Apache-2.0
// Max and average pooling of codes. The _reference functions are the definitions; the others give their bytes.
// Arithmetic: kernels/core/quantize.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// The shape of one image, NHWC. A stride is the number of elements from one pixel to the next, >= channels. Global
/// pooling has a window of the image's size. pad_h and pad_w precede the first row and column; the padding behind the
/// last ones follows from the output's size.
struct PoolShape {
  int channels = 0;
  int in_h = 0, in_w = 0, in_stride = 0;
  int out_h = 0, out_w = 0, out_stride = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
};

/// y = min(clamp_max, max(clamp_min, codes of the window)). Padding is left out; x and y have the same qparams.
struct MaxPoolParams {
  bool is_signed = false;
  int32_t clamp_min = 0, clamp_max = 255;
};

/// t = float(sum over the window of (xq - zx)) * multiplier; padding adds 0.
struct AvgPoolParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// Compute one image on the CPU, by definition.
void max_pool_int8_reference(const PoolShape& shape, const MaxPoolParams& params, const void* x, void* y);
void avg_pool_int8_reference(const PoolShape& shape, const AvgPoolParams& params, const void* x, void* y);

/// Computes some output rows of one image on the cpu engine's path `isa`; all tensors are uint8.
void cpu_max_pool_u8(CpuIsa isa, const PoolShape& shape, const MaxPoolParams& params, Range rows, const uint8_t* x,
                     uint8_t* y);

/// A thread's share of an average pool: some rows of a large output, or some channels where it is a single pixel.
struct AvgPoolPart {
  Range rows, channels;
};

/// Computes a share of one image on the cpu engine's path `isa`; all tensors are uint8.
void cpu_avg_pool_u8(CpuIsa isa, const PoolShape& shape, const AvgPoolParams& params, const AvgPoolPart& part,
                     const uint8_t* x, void* y);

/// The tensors of a batch on the device: x [images, in_h, in_w, in_stride], y [images, out_h, out_w, out_stride], of
/// which exactly `channels` of each pixel are written.
struct CudaPoolData {
  int images = 1;
  const void* x = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;  ///< of cuda_avg_pool_workspace() bytes, unless that is 0
};

/// Returns the bytes of workspace (kernels/core/cuda.h) that an average pool needs; 0 unless windows are large.
size_t cuda_avg_pool_workspace(const PoolShape& shape, int images);

/// Compute a batch on the GPU. They are fast when strides and addresses are multiples of 16; then lanes between
/// channels and stride may be read. Throw Error(promise) when the launch fails.
void cuda_max_pool_int8(const PoolShape& shape, const MaxPoolParams& params, const CudaPoolData& data,
                        CudaStream stream);
void cuda_avg_pool_int8(const PoolShape& shape, const AvgPoolParams& params, const CudaPoolData& data,
                        CudaStream stream);

}  // namespace octet::kernels
