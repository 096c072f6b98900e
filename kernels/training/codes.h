// SPDX-License-Identifier: Apache-2.0
// Between codes as engines store them and the real values that training multiplies with, on the GPU.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet::kernels {

/// Codes [rows, stride] on the device, of which the first `channels` of each row are used; rows are pixels of all
/// images.
struct CodeRows {
  const uint8_t* codes = nullptr;
  long rows = 0;
  int channels = 0, stride = 0;
  QParams qparams;
};

/// Writes dequantize(code), rounded to `type`, to y [rows, channels] on the device.
void cuda_real_values(const CodeRows& from, ValueType type, void* y, CudaStream stream);

/// Writes quantize(x) of x [rows, channels] to codes [rows, stride], all on the device.
void cuda_quantize_rows(const CodeRows& to, const float* x, uint8_t* codes, CudaStream stream);

}  // namespace octet::kernels
