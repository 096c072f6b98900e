// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/copies.h"

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

void subsample_pad_int8(const SubsamplePadShape& shape, const SubsamplePadParams& params, const uint8_t* x,
                        uint8_t* y) {
  const ptrdiff_t before = (shape.out_c - shape.in_c) / 2;
  for (ptrdiff_t row = 0; row < shape.out_h; ++row) {
    for (ptrdiff_t column = 0; column < shape.out_w; ++column) {
      const uint8_t* in = x + (row * shape.stride_h * shape.in_w + column * shape.stride_w) * shape.in_stride;
      uint8_t* out = y + (row * shape.out_w + column) * shape.out_stride;
      std::memset(out, params.zero_code, shape.out_c);
      std::memcpy(out + before, in, shape.in_c);
    }
  }
}

}  // namespace octet::kernels
