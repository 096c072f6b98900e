// SPDX-License-Identifier: Apache-2.0
// Bilinear resize of codes by integer factors, with half-pixel centres, as ONNX's Resize and PyTorch's interpolate
// without align_corners. bilinear_int8_reference() is the definition; the others give its bytes. Arithmetic:
// kernels/core/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// The shape of one image, NHWC. A stride is the number of elements from one pixel to the next, >= channels.
struct BilinearShape {
  int channels = 0;
  int in_h = 0, in_w = 0, in_stride = 0;
  int out_stride = 0;
  int factor_h = 1, factor_w = 1;
  int out_h() const { return in_h * factor_h; }
  int out_w() const { return in_w * factor_w; }
};

/// t = float(sum over four pixels of (xq - zx) * row weight * column weight) * multiplier. The weights of the four add
/// up to 4 * factor_h * factor_w, by which the multiplier divides. The sum stays below 2^24, where float32 is exact,
/// for factors that src/net/shapes.h accepts.
struct BilinearParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// The two rows (or columns) of the input between which a row of the output lies, and their weights, which add up to
/// 2 * factor. Beyond the centres of the first and last row both are the same row.
struct BilinearTaps {
  int first, second;
  int32_t first_weight, second_weight;
};

/// Returns the taps of output row (or column) `out`, whose centre lies at (out + 1/2) / factor - 1/2 of the input.
/// `place` is that in units of 1 / (2 factor).
OCTET_HOST_DEVICE inline BilinearTaps bilinear_taps(int out, int factor, int in_size) {
  const int place = 2 * out + 1 - factor;
  if (place < 0) return {0, 0, 2 * factor, 0};
  const int first = place / (2 * factor), beyond = place % (2 * factor);
  return {first, first + 1 < in_size ? first + 1 : first, 2 * factor - beyond, beyond};
}

/// Computes one image on the CPU, by definition.
void bilinear_int8_reference(const BilinearShape& shape, const BilinearParams& params, const void* x, void* y);

/// Computes some output rows of one image on the cpu engine's path `isa`; x is uint8.
void cpu_bilinear_u8(CpuIsa isa, const BilinearShape& shape, const BilinearParams& params, Range rows, const uint8_t* x,
                     void* y);

/// The tensors of a batch on the device: x [images, in_h, in_w, in_stride], y [images, out_h, out_w, out_stride], of
/// which exactly `channels` of each pixel are written.
struct CudaBilinearData {
  int images = 1;
  const void* x = nullptr;
  void* y = nullptr;
};

/// Computes a batch on the GPU. A thread takes four channels when x and its stride are multiples of 4; then lanes
/// between channels and stride may be read. Throws Error(promise) when the launch fails.
void cuda_bilinear_int8(const BilinearShape& shape, const BilinearParams& params, const CudaBilinearData& data,
                        CudaStream stream);

}  // namespace octet::kernels
