// add, mul and requantize for the cpu engine: uint8 edges only, results as elementwise_int8.h defines them on every
// path.
#pragma once

#include "kernels/conv2d_int8/cpu_conv2d.h"
#include "kernels/elementwise_int8/elementwise_int8.h"

namespace octet::kernels {

/// The pixels of `range`. When all strides agree and y is no slice, the lanes between channels and stride are written
/// too.
void cpu_requantize_u8(CpuIsa isa, const ElementwiseShape& shape, const RequantizeParams& params, Range range,
                       const uint8_t* x, void* y);
void cpu_add_u8(CpuIsa isa, const ElementwiseShape& shape, const AddParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y);
void cpu_mul_u8(CpuIsa isa, const ElementwiseShape& shape, const MulParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y);

}  // namespace octet::kernels
