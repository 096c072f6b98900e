// The paths behind CpuConv2d::create, one factory a path. Internal to this folder.
#pragma once

#include <memory>

#include "kernels/conv2d_int8/cpu/depthwise.h"
#include "kernels/conv2d_int8/cpu/gemm.h"
#include "kernels/conv2d_int8/cpu_conv2d.h"

namespace octet::kernels {

/// Puts table[code] in place of the codes of `rows` pixels, `channels` each, `stride` bytes apart.
void look_up_rows(CpuIsa isa, const LookupTable& table, uint8_t* y, int rows, ptrdiff_t stride, int channels);

/// Any shape, plain C++.
std::unique_ptr<CpuConv2d> make_portable_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                const Conv2dWeights& weights);

/// Any shape as a matrix product on the micro-kernels of one instruction set.
std::unique_ptr<CpuConv2d> make_gemm_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, CpuIsa isa);

/// groups == in_c == out_c, codes out, on the kernels of one instruction set.
std::unique_ptr<CpuConv2d> make_depthwise_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                 const Conv2dWeights& weights, CpuIsa isa);

}  // namespace octet::kernels
