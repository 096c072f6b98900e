// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/bilinear.h"

#include "kernels/core/cpu.h"

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

namespace {

/// The four pixels around a pixel of the output and their weights. The zero point is subtracted from the weighted sum,
/// since the sum of the weights is known.
struct Corners {
  const uint8_t* pixel[4];
  int32_t weight[4];
};

[[gnu::always_inline]] inline void interpolate_pixel(const BilinearShape& s, const BilinearParams& params,
                                                     const FastRounding& round, const Corners& from, ptrdiff_t at,
                                                     void* y) {
  const uint8_t *a = from.pixel[0], *b = from.pixel[1], *c = from.pixel[2], *d = from.pixel[3];
  const int32_t wa = from.weight[0], wb = from.weight[1], wc = from.weight[2], wd = from.weight[3];
  const int32_t zeros = 4 * s.factor_h * s.factor_w * params.x.zero_point;
  const float multiplier = params.multiplier;
  const auto value = [&](ptrdiff_t i) {
    return static_cast<float>(wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i] - zeros) * multiplier;
  };
  store_results(params.y, round, s.channels, value, y, at);
}

[[gnu::always_inline]] inline void bilinear_loop(const BilinearShape& s, const BilinearParams& params, Range rows,
                                                 const uint8_t* x, void* y) {
  const FastRounding round(params.y);
  for (int row = rows.begin; row < rows.end; ++row) {
    const BilinearTaps v = bilinear_taps(row, s.factor_h, s.in_h);
    const uint8_t* above = x + static_cast<ptrdiff_t>(v.first) * s.in_w * s.in_stride;
    const uint8_t* below = x + static_cast<ptrdiff_t>(v.second) * s.in_w * s.in_stride;
    for (int column = 0; column < s.out_w(); ++column) {
      const BilinearTaps h = bilinear_taps(column, s.factor_w, s.in_w);
      const ptrdiff_t left = static_cast<ptrdiff_t>(h.first) * s.in_stride;
      const ptrdiff_t right = static_cast<ptrdiff_t>(h.second) * s.in_stride;
      const Corners corners{{above + left, above + right, below + left, below + right},
                            {v.first_weight * h.first_weight, v.first_weight * h.second_weight,
                             v.second_weight * h.first_weight, v.second_weight * h.second_weight}};
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * s.out_w() + column;
      interpolate_pixel(s, params, round, corners, pixel * s.out_stride, y);
    }
  }
}

}  // namespace

void cpu_bilinear_u8(CpuIsa isa, const BilinearShape& shape, const BilinearParams& params, Range rows, const uint8_t* x,
                     void* y) {
  run_on<bilinear_loop>(isa, shape, params, rows, x, y);
}

}  // namespace octet::kernels
