#include "kernels/elementwise_int8/cpu_elementwise_int8.h"

#include <algorithm>

#include "kernels/cpu_targets.h"
#include "kernels/elementwise_int8/avx512_mul.h"

namespace octet::kernels {
namespace {

// `count` neighbouring elements.
struct Run {
  ptrdiff_t x, other, y, count;
};

// Cuts a range of pixels into runs: one when the strides agree, else one a pixel.
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

// value(i) is t of the i-th element of a run.
template <typename Value>
[[gnu::always_inline]] inline void store_run(const CodeOutput& out, void* y, const Run& run, const Value& value) {
  if (out.float_output) {
    float* __restrict reals = static_cast<float*>(y) + run.y;
    for (ptrdiff_t i = 0; i < run.count; ++i) reals[i] = value(i);
    return;
  }
  const FastRounding round(out);
  uint8_t* __restrict codes = static_cast<uint8_t*>(y) + run.y;
  for (ptrdiff_t i = 0; i < run.count; ++i) codes[i] = round(value(i));
}

[[gnu::always_inline]] inline void requantize_loop(const ElementwiseShape& shape, const RequantizeParams& params,
                                                   Range range, const uint8_t* x, void* y) {
  const int32_t zero_point = params.x.zero_point;
  const float multiplier = params.multiplier;
  for_each_run(shape, range, shape.x_stride == shape.y_stride && !shape.y_is_slice, [&](const Run& run) {
    const uint8_t* __restrict in = x + run.x;
    store_run(params.y, y, run, [&](ptrdiff_t i) { return static_cast<float>(in[i] - zero_point) * multiplier; });
  });
}

[[gnu::always_inline]] inline void add_loop(const ElementwiseShape& shape, const AddParams& params, Range range,
                                            const uint8_t* x, const uint8_t* other, void* y) {
  const int32_t x_zero = params.x.zero_point, other_zero = params.other.zero_point;
  const float x_multiplier = params.x_multiplier, other_multiplier = params.other_multiplier;
  for_each_run(shape, range, all_in_one_run(shape), [&](const Run& run) {
    const uint8_t* __restrict a = x + run.x;
    const uint8_t* __restrict b = other + run.other;
    store_run(params.y, y, run, [&](ptrdiff_t i) {
      const float t = static_cast<float>(a[i] - x_zero) * x_multiplier;
      return __builtin_fmaf(static_cast<float>(b[i] - other_zero), other_multiplier, t);
    });
  });
}

[[gnu::always_inline]] inline void mul_loop(const ElementwiseShape& shape, const MulParams& params, Range range,
                                            const uint8_t* x, const uint8_t* other, void* y) {
  const int32_t x_zero = params.x.zero_point, other_zero = params.other.zero_point;
  const float multiplier = params.multiplier;
  for_each_run(shape, range, all_in_one_run(shape), [&](const Run& run) {
    const uint8_t* __restrict a = x + run.x;
    const uint8_t* __restrict b = other + run.other;
    store_run(params.y, y, run,
              [&](ptrdiff_t i) { return static_cast<float>((a[i] - x_zero) * (b[i] - other_zero)) * multiplier; });
  });
}

}  // namespace

OCTET_FOR_EACH_ISA(requantize, requantize_loop,
                   (const ElementwiseShape& shape, const RequantizeParams& params, Range range, const uint8_t* x,
                    void* y),
                   (shape, params, range, x, y))

OCTET_FOR_EACH_ISA(add, add_loop,
                   (const ElementwiseShape& shape, const AddParams& params, Range range, const uint8_t* x,
                    const uint8_t* other, void* y),
                   (shape, params, range, x, other, y))

OCTET_FOR_EACH_ISA(mul, mul_loop,
                   (const ElementwiseShape& shape, const MulParams& params, Range range, const uint8_t* x,
                    const uint8_t* other, void* y),
                   (shape, params, range, x, other, y))

void cpu_requantize_u8(CpuIsa isa, const ElementwiseShape& shape, const RequantizeParams& params, Range range,
                       const uint8_t* x, void* y) {
  requantize_for(isa)(shape, params, range, x, y);
}

void cpu_add_u8(CpuIsa isa, const ElementwiseShape& shape, const AddParams& params, Range range, const uint8_t* x,
                const uint8_t* other, void* y) {
  add_for(isa)(shape, params, range, x, other, y);
}

#if defined(__x86_64__)
namespace {

/// Factors a channel of few channels, whose pixels fill 64 bytes evenly, repeat: the whole range is then one run.
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
  if (isa == CpuIsa::avx512_vnni && !params.y.float_output)
    return mul_avx512(shape, params, range, x, other, static_cast<uint8_t*>(y));
#endif
  mul_for(isa)(shape, params, range, x, other, y);
}

}  // namespace octet::kernels
