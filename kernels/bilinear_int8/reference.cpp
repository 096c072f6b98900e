#include "kernels/bilinear_int8/bilinear_int8.h"

namespace octet::kernels {
namespace {

template <typename Code>
void interpolate(const BilinearShape& s, const BilinearParams& params, const Code* x, void* y) {
  for (int row = 0; row < s.out_h(); ++row) {
    const BilinearTaps rows = bilinear_taps(row, s.factor_h, s.in_h);
    for (int column = 0; column < s.out_w(); ++column) {
      const BilinearTaps columns = bilinear_taps(column, s.factor_w, s.in_w);
      for (int channel = 0; channel < s.channels; ++channel) {
        const auto code = [&](int in_row, int in_column) {
          const ptrdiff_t pixel = static_cast<ptrdiff_t>(in_row) * s.in_w + in_column;
          return centred_code<Code>(x, pixel * s.in_stride + channel, params.x.zero_point);
        };
        const int32_t above = columns.first_weight * code(rows.first, columns.first) +
                              columns.second_weight * code(rows.first, columns.second);
        const int32_t below = columns.first_weight * code(rows.second, columns.first) +
                              columns.second_weight * code(rows.second, columns.second);
        const int32_t sum = rows.first_weight * above + rows.second_weight * below;
        const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * s.out_w() + column;
        store_result(static_cast<float>(sum) * params.multiplier, params.y, y, pixel * s.out_stride + channel);
      }
    }
  }
}

}  // namespace

void bilinear_int8_reference(const BilinearShape& shape, const BilinearParams& params, const void* x, void* y) {
  if (params.x.is_signed) {
    interpolate(shape, params, static_cast<const int8_t*>(x), y);
  } else {
    interpolate(shape, params, static_cast<const uint8_t*>(x), y);
  }
}

}  // namespace octet::kernels
