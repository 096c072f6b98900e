#include "kernels/elementwise_int8/subsample_pad_int8.h"

#include <cstddef>
#include <cstring>

namespace octet::kernels {

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
