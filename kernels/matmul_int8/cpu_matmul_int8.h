// Products of images for the cpu engine: uint8 edges only, results as matmul_int8.h defines them on every path.
#pragma once

#include <cstddef>

#include "kernels/conv2d_int8/cpu_conv2d.h"
#include "kernels/matmul_int8/matmul_int8.h"

namespace octet::kernels {

/// An image's work is cut into so many pieces: blocks of columns of a head, each for all rows.
int cpu_matmul_units(const MatmulShape& shape);

/// Scratch that cpu_matmul_u8 needs, aligned to 64 bytes.
size_t cpu_matmul_workspace(const MatmulShape& shape);

/// Some units of one image. Bytes behind the last pixel of a are read too, kCpuReadSlack at most.
void cpu_matmul_u8(CpuIsa isa, const MatmulShape& shape, const MatmulParams& params, Range units, const uint8_t* a,
                   const uint8_t* b, void* y, void* workspace);

}  // namespace octet::kernels
