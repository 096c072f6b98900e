// Bilinear resizing for the cpu engine: uint8 edges only, results as bilinear_int8.h defines them on every path.
#pragma once

#include "kernels/bilinear_int8/bilinear_int8.h"
#include "kernels/conv2d_int8/cpu_conv2d.h"

namespace octet::kernels {

/// Output rows of one image.
void cpu_bilinear_u8(CpuIsa isa, const BilinearShape& shape, const BilinearParams& params, Range rows, const uint8_t* x,
                     void* y);

}  // namespace octet::kernels
