#include "kernels/elementwise_int8/pick_int8.h"

#include <cstddef>
#include <cstring>

namespace octet::kernels {

void pick_int8(const PickShape& s, Range rows, const uint8_t* x, uint8_t* y) {
  for (ptrdiff_t row = rows.begin; row < rows.end; ++row) {
    for (ptrdiff_t column = 0; column < s.out_w; ++column) {
      const ptrdiff_t from = row / s.factor_h * s.in_w + column / s.factor_w;
      const ptrdiff_t first = s.first_channel + s.part * (row % s.factor_h * s.factor_w + column % s.factor_w);
      const uint8_t* in = x + from * s.in_stride + first;
      uint8_t* out = y + (row * s.out_w + column) * s.out_stride;
      if (s.groups == 1) {
        std::memcpy(out, in, s.channels);
      } else {
        for (int group = 0, size = s.channels / s.groups; group < s.groups; ++group) {
          for (int i = 0; i < size; ++i) out[i * s.groups + group] = in[group * size + i];
        }
      }
    }
  }
}

}  // namespace octet::kernels
