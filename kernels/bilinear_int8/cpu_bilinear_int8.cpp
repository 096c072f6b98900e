#include "kernels/bilinear_int8/cpu_bilinear_int8.h"

#include "kernels/cpu_targets.h"

namespace octet::kernels {
namespace {

// The pixels around one of the output and their weights. The zero point comes off the sum: the weights' sum is known.
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
  const auto value = [&](int i) {
    return static_cast<float>(wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i] - zeros) * multiplier;
  };
  if (params.y.float_output) {
    float* __restrict reals = static_cast<float*>(y) + at;
    for (int i = 0; i < s.channels; ++i) reals[i] = value(i);
  } else {
    uint8_t* __restrict codes = static_cast<uint8_t*>(y) + at;
    for (int i = 0; i < s.channels; ++i) codes[i] = round(value(i));
  }
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

OCTET_FOR_EACH_ISA(bilinear, bilinear_loop,
                   (const BilinearShape& shape, const BilinearParams& params, Range rows, const uint8_t* x, void* y),
                   (shape, params, rows, x, y))

void cpu_bilinear_u8(CpuIsa isa, const BilinearShape& shape, const BilinearParams& params, Range rows, const uint8_t* x,
                     void* y) {
  bilinear_for(isa)(shape, params, rows, x, y);
}

}  // namespace octet::kernels
