// Softmax for the cpu engine: uint8 edges only, results as softmax_int8.h defines them on every path.
#pragma once

#include "kernels/conv2d_int8/cpu_conv2d.h"
#include "kernels/softmax_int8/softmax_int8.h"

namespace octet::kernels {

/// Pixels of one image.
void cpu_softmax_u8(CpuIsa isa, const SoftmaxShape& shape, const SoftmaxParams& params, Range pixels, const uint8_t* x,
                    void* y);

}  // namespace octet::kernels
