#include "kernels/elementwise_int8/pick_int8.h"

#include <cstddef>
#include <cstring>

namespace octet::kernels {

void pick_int8(const PickShape& s, Range rows, const uint8_t* x, uint8_t* y) {
  for (ptrdiff_t row = rows.begin; row < rows.end; ++row) {
    for (ptrdiff_t column = 0; column < s.out_w; ++column) {
      const ptrdiff_t from = row / s.factor_h * s.in_w + column / s.factor_w;
      std::memcpy(y + (row * s.out_w + column) * s.out_stride, x + from * s.in_stride + s.first_channel, s.channels);
    }
  }
}

}  // namespace octet::kernels
