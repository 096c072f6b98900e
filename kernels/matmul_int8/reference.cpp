#include "kernels/matmul_int8/matmul_int8.h"

namespace octet::kernels {
namespace {

int32_t centred(const CodeInput& edge, const void* codes, ptrdiff_t index) {
  return edge.is_signed ? centred_code<int8_t>(codes, index, edge.zero_point)
                        : centred_code<uint8_t>(codes, index, edge.zero_point);
}

}  // namespace

void matmul_int8_reference(const MatmulShape& s, const MatmulParams& params, const void* a, const void* b, void* y) {
  for (int row = 0; row < s.rows; ++row) {
    for (int head = 0; head < s.heads; ++head) {
      const ptrdiff_t from = static_cast<ptrdiff_t>(row) * s.a_stride + head * s.terms;
      const ptrdiff_t to = static_cast<ptrdiff_t>(row) * s.y_stride + head * s.columns;
      for (int column = 0; column < s.columns; ++column) {
        int32_t sum = 0;
        for (int term = 0; term < s.terms; ++term)
          sum += centred(params.a, a, from + term) * centred(params.b, b, matmul_b_index(s, head, term, column));
        store_result(static_cast<float>(sum) * params.multiplier, params.y, y, to + column);
      }
    }
  }
}

}  // namespace octet::kernels
