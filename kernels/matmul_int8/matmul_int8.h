// Products of two images of codes, head by head: the two matrix products of attention. The reference is the definition;
// arithmetic: quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// One image, NHWC; `*_stride` is the distance in elements between neighbouring pixels (>= channels). a is
/// [rows, heads * terms], y [rows, heads * columns]; b is [columns, heads * terms] when transposed, else
/// [terms, heads * columns].
struct MatmulShape {
  int rows = 0, heads = 1, terms = 0, columns = 0;
  int a_stride = 0, b_stride = 0, y_stride = 0;
  bool transposed = false;
  int b_rows() const { return transposed ? columns : terms; }
};

/// t = float(sum over the terms of (aq - za) * (bq - zb)) * multiplier. For shapes without fault (src/graph/window.h)
/// no sum leaves int32.
struct MatmulParams {
  CodeInput a, b;
  float multiplier = 0;
  CodeOutput y;
};

/// Where term `term` of column `column` is in one image of b.
OCTET_HOST_DEVICE inline ptrdiff_t matmul_b_index(const MatmulShape& s, int head, int term, int column) {
  return s.transposed ? static_cast<ptrdiff_t>(column) * s.b_stride + head * s.terms + term
                      : static_cast<ptrdiff_t>(term) * s.b_stride + head * s.columns + column;
}

void matmul_int8_reference(const MatmulShape& shape, const MatmulParams& params, const void* a, const void* b, void* y);

}  // namespace octet::kernels
