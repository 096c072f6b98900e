// SPDX-License-Identifier: Apache-2.0
// The operators of attention: products of two tensors of codes head by head (matmul), and softmax. The _reference
// functions are the definitions; the others give their bytes. Arithmetic: kernels/core/quantize.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// The shape of one image's product; pixels are rows. a is [rows, heads * terms] and y [rows, heads * columns]; b is
/// [columns, heads * terms] when transposed, else [terms, heads * columns]. A stride is the number of elements from one
/// pixel to the next, >= channels.
struct MatmulShape {
  int rows = 0, heads = 1, terms = 0, columns = 0;
  int a_stride = 0, b_stride = 0, y_stride = 0;
  bool transposed = false;
  int b_rows() const { return transposed ? columns : terms; }
};

/// t = float(sum over the terms of (aq - za) * (bq - zb)) * multiplier. No sum leaves int32 in graphs that
/// src/net/shapes.h accepts.
struct MatmulParams {
  CodeInput a, b;
  float multiplier = 0;
  CodeOutput y;
};

/// Returns the index of term `term` of column `column` in one image of b.
OCTET_HOST_DEVICE inline ptrdiff_t matmul_b_index(const MatmulShape& s, int head, int term, int column) {
  return s.transposed ? static_cast<ptrdiff_t>(column) * s.b_stride + head * s.terms + term
                      : static_cast<ptrdiff_t>(term) * s.b_stride + head * s.columns + column;
}

/// Computes one image on the CPU, by definition.
void matmul_int8_reference(const MatmulShape& shape, const MatmulParams& params, const void* a, const void* b, void* y);

/// Returns the number of units of an image's product: blocks of columns of one head, each for all rows.
int cpu_matmul_units(const MatmulShape& shape);

/// Returns the bytes of workspace that cpu_matmul_u8() needs, aligned to 64 bytes.
size_t cpu_matmul_workspace(const MatmulShape& shape);

/// Computes some units of one image on the cpu engine's path `isa`; a and b are uint8. Up to kCpuReadSlack bytes behind
/// the last pixel of a are read.
void cpu_matmul_u8(CpuIsa isa, const MatmulShape& shape, const MatmulParams& params, Range units, const uint8_t* a,
                   const uint8_t* b, void* y, void* workspace);

/// The tensors of a batch on the device: a [images, rows, a_stride], b [images, b_rows, b_stride] and y [images, rows,
/// y_stride], of which exactly heads * columns of each pixel are written.
struct CudaMatmulData {
  int images = 1;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
};

/// Computes a batch on the GPU. Throws Error(promise) when the launch fails.
void cuda_matmul_int8(const MatmulShape& shape, const MatmulParams& params, const CudaMatmulData& data,
                      CudaStream stream);

/// Softmax over each group of channels of each pixel. A stride is the number of elements from one pixel to the next,
/// >= groups * channels.
struct SoftmaxShape {
  int pixels = 0;
  int groups = 1, channels = 0;  ///< channels of one group
  int x_stride = 0, y_stride = 0;
};

/// e = exponential[largest code of the group - code]; t = float(e) / float(sum of e over the group) * multiplier, where
/// the quotient and the product are rounded once each. exponential[0] is above 0 and no sum leaves int32
/// (src/net/validate.cpp).
struct SoftmaxParams {
  int32_t exponential[256] = {};
  bool x_is_signed = false;
  float multiplier = 0;
  CodeOutput y;
};

/// Computes one image on the CPU, by definition.
void softmax_int8_reference(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y);

/// Computes some pixels of one image on the cpu engine's path `isa`; x is uint8.
void cpu_softmax_u8(CpuIsa isa, const SoftmaxShape& shape, const SoftmaxParams& params, Range pixels, const uint8_t* x,
                    void* y);

/// Computes shape.pixels pixels, which are those of a whole batch, on the GPU. x and y are [pixels, stride] on the
/// device; exactly groups * channels of each pixel of y are written. Throws Error(promise) when the launch fails.
void cuda_softmax_int8(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y,
                       CudaStream stream);

}  // namespace octet::kernels
