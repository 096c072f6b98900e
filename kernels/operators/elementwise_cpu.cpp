// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/elementwise.h"

#include <algorithm>

#include "kernels/core/cpu.h"
#include "kernels/operators/products_avx512.h"

namespace octet::kernels {
namespace {

float centred(const void* data, ptrdiff_t index, const CodeInput& edge) {
  return static_cast<float>(centred_code(data, index, edge));
}

/// Calls body(x index, other index, y index) for every element.
template <typename Body>
void for_each_element(const ElementwiseShape& shape, const Body& body) {
  for (ptrdiff_t pixel = 0; pixel < shape.pixels; ++pixel) {
    const ptrdiff_t other = shape.other_is_pixel ? 0 : pixel * shape.other_stride;
    for (ptrdiff_t c = 0; c < shape.channels; ++c) {
      body(pixel * shape.x_stride + c, other + c, pixel * shape.y_stride + c);
    }
  }
}

}  // namespace

void requantize_int8_reference(const ElementwiseShape& shape, const RequantizeParams& params, const void* x, void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t, ptrdiff_t yi) {
    store_result(centred(x, xi, params.x) * params.multiplier, params.y, y, yi);
  });
}

void add_int8_reference(const ElementwiseShape& shape, const AddParams& params, const void* x, const void* other,
                        void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t oi, ptrdiff_t yi) {
    const float t = centred(x, xi, params.x) * params.x_multiplier;
    store_result(fmaf(centred(other, oi, params.other), params.other_multiplier, t), params.y, y, yi);
  });
}

void mul_int8_reference(const ElementwiseShape& shape, const MulParams& params, const void* x, const void* other,
                        void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t oi, ptrdiff_t yi) {
    const int32_t product = centred_code(x, xi, params.x) * centred_code(other, oi, params.other);
    store_result(static_cast<float>(product) * params.multiplier, params.y, y, yi);
  });
}

void prelu_int8_reference(const ElementwiseShape& shape, const PreluParams& params, const float* slopes, const void* x,
                          void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t, ptrdiff_t yi) {
    const float value = centred(x, xi, params.x);
    store_result(value * (value < 0 ? slopes[xi % shape.x_stride] : params.multiplier), params.y, y, yi);
  });
}

namespace {

/// `count` neighbouring elements and where they begin in each tensor.
struct Run {
  ptrdiff_t x, other, y, count;
};

/// Calls body(Run) for a range of pixels: once with one_run, when all strides are equal, else once per pixel.
template <typename Body>
[[gnu::always_inline]] inline void for_each_run(const ElementwiseShape& s, Range range, bool one_run,
                                                const Body& body) {
  if (one_run) {
    const ptrdiff_t begin = static_cast<ptrdiff_t>(range.begin) * s.x_stride;
    body(Run{begin, begin, begin, static_cast<ptrdiff_t>(range.end - range.begin) * s.x_stride});
    return;
  }
  for (ptrdiff_t pixel = range.begin; pixel < range.end; ++pixel) {
    const ptrdiff_t other = s.other_is_pixel ? 0 : pixel * s.other_stride;
    body(Run{pixel * s.x_stride, other, pixel * s.y_stride, s.channels});
  }
}

inline bool all_in_one_run(const ElementwiseShape& s) {
  return s.x_stride == s.y_stride && s.other_stride == s.y_stride && !s.y_is_slice && !s.other_is_pixel;
}

[[gnu::always_inline]] inline void requantize_loop(const ElementwiseShape& shape, const RequantizeParams& params,
                                                   Range range, const uint8_t* x, void* y) {
  const int32_t zero_point = params.x.zero_point;
  const float multiplier = params.multiplier;
  const FastRounding round(params.y);
  for_each_run(shape, range, shape.x_stride == shape.y_stride && !shape.y_is_slice, [&](const Run& run) {
    const uint8_t* __restrict in = x + run.x;
    const auto value = [&](ptrdiff_t i) { return static_cast<float>(in[i] - zero_point) * multiplier; };
    store_results(params.y, round, run.count, value, y, run.y);
  });
}

[[gnu::always_inline]] inline void add_loop(const ElementwiseShape& shape, const AddParams& params, Range range,
                                            const uint8_t* x, const uint8_t* other, void* y) {
  const int32_t x_zero = params.x.zero_point, other_zero = params.other.zero_point;
  const float x_multiplier = params.x_multiplier, other_multiplier = params.other_multiplier;
  const FastRounding round(params.y);
  for_each_run(shape, range, all_in_one_run(shape), [&](const Run& run) {
    const uint8_t* __restrict a = x + run.x;
    const uint8_t* __restrict b = other + run.other;
    const auto value = [&](ptrdiff_t i) {
      const float t = static_cast<float>(a[i] - x_zero) * x_multiplier;
      return __builtin_fmaf(static_cast<float>(b[i] - other_zero), other_multiplier, t);
    };
    store_results(params.y, round, run.count, value, y, run.y);
  });
}

[[gnu::always_inline]] inline void mul_loop(const ElementwiseShape& shape, const MulParams& params, Range range,
                                            const uint8_t* x, const uint8_t* other, void* y) {
  const int32_t x_zero = params.x.zero_point, other_zero = params.other.zero_point;
  const float multiplier = params.multiplier;
  const FastRounding round(params.y);
  for_each_run(shape, range, all_in_one_run(shape), [&](const Run& run) {
    const uint8_t* __restrict a = x + run.x;
    const uint8_t* __restrict b = other + run.other;
    const auto value = [&](ptrdiff_t i) {
      return static_cast<float>((a[i] - x_zero) * (b[i] - other_zero)) * multiplier;
    };
    store_results(params.y, round, run.count, value, y, run.y);
  });
}

/// One run a pixel, so that a slope stands at the index of its channel.
[[gnu::always_inline]] inline void prelu_loop(const ElementwiseShape& shape, const PreluParams& params,
                                              const float* slopes, Range range, const uint8_t* x, void* y) {
  const int32_t zero_point = params.x.zero_point;
  const float multiplier = params.multiplier;
  const FastRounding round(params.y);
  for_each_run(shape, range, false, [&](const Run& run) {
    const uint8_t* __restrict in = x + run.x;
    const float* __restrict slope = slopes;
    const auto value = [&](ptrdiff_t i) {
      return static_cast<float>(in[i] - zero_point) * (in[i] < zero_point ? slope[i] : multiplier);
    };
    store_results(params.y, round, run.count, value, y, run.y);
  });
}

}  // namespace

void cpu_requantize_u8(CpuIsa isa, const ElementwiseShape& shape, const RequantizeParams& params, Range range,
                       const uint8_t* x, void* y) {
  run_on<requantize_loop>(isa, shape, params, range, x, y);
}

void cpu_add_u8(CpuIsa isa, const ElementwiseShape& shape, const AddParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y) {
  run_on<add_loop>(isa, shape, params, range, x, other, y);
}

void cpu_prelu_u8(CpuIsa isa, const ElementwiseShape& shape, const PreluParams& params, const float* slopes,
                  Range range, const uint8_t* x, void* y) {
  run_on<prelu_loop>(isa, shape, params, slopes, range, x, y);
}

#if defined(__x86_64__)
namespace {

/// mul on the AVX-512 path. Where other is one pixel per image and whole pixels fill 64 bytes, the factors repeat every
/// 64 bytes, so the range is one run.
void mul_avx512(const ElementwiseShape& shape, const MulParams& params, Range range, const uint8_t* x,
                const uint8_t* other, uint8_t* y) {
  MulRun part{.x_zero = params.x.zero_point, .b_zero = params.other.zero_point, .multiplier = params.multiplier};
  part.epilogue.high = static_cast<float>(params.y.clamp_max - params.y.zero_point);
  part.epilogue.zero_point = params.y.zero_point;
  part.epilogue.clamp_min = params.y.clamp_min;
  const bool repeats =
      shape.other_is_pixel && shape.x_stride == shape.y_stride && !shape.y_is_slice && 64 % shape.x_stride == 0;
  uint8_t factors[64] = {};
  if (repeats) {
    for (int pixel = 0; pixel < 64; pixel += shape.x_stride) std::copy_n(other, shape.channels, factors + pixel);
    part.b_step = 0;
  }
  for_each_run(shape, range, repeats || all_in_one_run(shape), [&](const Run& run) {
    part.x = x + run.x;
    part.b = repeats ? factors : other + run.other;
    part.count = run.count;
    part.y = y + run.y;
    avx512_mul(part);
  });
}

}  // namespace
#endif

void cpu_mul_u8(CpuIsa isa, const ElementwiseShape& shape, const MulParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y) {
#if defined(__x86_64__)
  if (vector_isa(isa) == CpuIsa::avx512_vnni && !params.y.float_output)
    return mul_avx512(shape, params, range, x, other, static_cast<uint8_t*>(y));
#endif
  run_on<mul_loop>(isa, shape, params, range, x, other, y);
}

}  // namespace octet::kernels
