// Pooling for the cpu engine: uint8 edges only, results as pool_int8.h defines them on every path.
#pragma once

#include "kernels/conv2d_int8/cpu_conv2d.h"
#include "kernels/pool_int8/pool_int8.h"

namespace octet::kernels {

/// Output rows of one image.
void cpu_max_pool_u8(CpuIsa isa, const PoolShape& shape, const MaxPoolParams& params, Range rows, const uint8_t* x,
                     uint8_t* y);

/// What threads share of an average pool: by rows when the output is large, by channels when it is one pixel.
struct AvgPoolPart {
  Range rows, channels;
};
void cpu_avg_pool_u8(CpuIsa isa, const PoolShape& shape, const AvgPoolParams& params, const AvgPoolPart& part,
                     const uint8_t* x, void* y);

}  // namespace octet::kernels
