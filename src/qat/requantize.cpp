#include "src/qat/requantize.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"

// The inner loops are compiled for several instruction sets and picked at start; the arithmetic is the same in all: fma
// and rint round once, by definition. kernels/clones.h has no fma in its sets, which is most of the work here.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define OCTET_FMA_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OCTET_FMA_CLONES
#endif

namespace octet {
namespace {

constexpr int64_t kGrain = 16384;  // values a thread takes at least

inline __attribute__((always_inline)) float finish(float t, const Rounding& r) {
  return static_cast<float>(round_code(t, r.zero_point, r.lo, r.hi) - r.zero_point);
}

template <class Acc>
inline __attribute__((always_inline)) void row_loop(const ChannelRule& rule, const Acc* acc, const float* residual,
                                                    float* out) {
  const Rounding rounding = rule.rounding;
  if (rounding.float_output) {
    for (int k = 0; k < rule.channels; ++k)
      out[k] = rescale(static_cast<int32_t>(acc[k]), rule.multiplier[k], rule.bias[k]);
  } else if (residual != nullptr) {
    for (int k = 0; k < rule.channels; ++k) {
      const float t = rescale(static_cast<int32_t>(acc[k]), rule.multiplier[k], rule.bias[k]);
      out[k] = finish(std::fmaf(residual[k], rule.residual_multiplier, t), rounding);
    }
  } else {
    for (int k = 0; k < rule.channels; ++k)
      out[k] = finish(rescale(static_cast<int32_t>(acc[k]), rule.multiplier[k], rule.bias[k]), rounding);
  }
}

OCTET_FMA_CLONES void rows_f32(const ChannelRule& rule, const float* acc, int64_t begin, int64_t end, float* out) {
  const int64_t c = rule.channels;
  for (int64_t row = begin; row < end; ++row)
    row_loop(rule, acc + row * c, rule.residual ? rule.residual + row * c : nullptr, out + row * c);
}

OCTET_FMA_CLONES void rows_f64(const ChannelRule& rule, const double* acc, int64_t begin, int64_t end, float* out) {
  const int64_t c = rule.channels;
  for (int64_t row = begin; row < end; ++row)
    row_loop(rule, acc + row * c, rule.residual ? rule.residual + row * c : nullptr, out + row * c);
}

OCTET_FMA_CLONES void rescale_range(const Rounding& rounding, float multiplier, const float* x, int64_t count,
                                    float* out) {
  const Rounding r = rounding;
  if (r.float_output)
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * multiplier;
  else
    for (int64_t i = 0; i < count; ++i) out[i] = finish(x[i] * multiplier, r);
}

OCTET_FMA_CLONES void add_range(const AddRule& rule, const float* a, const float* b, int64_t count, float* out) {
  const AddRule r = rule;
  for (int64_t i = 0; i < count; ++i)
    out[i] = finish(std::fmaf(b[i], r.multiplier_b, a[i] * r.multiplier_a), r.rounding);
}

int64_t row_grain(const ChannelRule& rule) { return std::max<int64_t>(1, kGrain / std::max(1, rule.channels)); }

}  // namespace

void requantize(const ChannelRule& rule, const float* acc, int64_t rows, float* out) {
  at::parallel_for(0, rows, row_grain(rule), [&](int64_t begin, int64_t end) { rows_f32(rule, acc, begin, end, out); });
}

void requantize(const ChannelRule& rule, const double* acc, int64_t rows, float* out) {
  at::parallel_for(0, rows, row_grain(rule), [&](int64_t begin, int64_t end) { rows_f64(rule, acc, begin, end, out); });
}

void rescale_codes(const Rounding& rounding, float multiplier, const float* x, int64_t count, float* out) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    rescale_range(rounding, multiplier, x + begin, end - begin, out + begin);
  });
}

void add_codes(const AddRule& rule, const float* a, const float* b, int64_t count, float* out) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    add_range(rule, a + begin, b + begin, end - begin, out + begin);
  });
}

void store_codes(const float* centred, int64_t count, int32_t zero_point, uint8_t* out) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = static_cast<uint8_t>(static_cast<int32_t>(centred[i]) + zero_point);  // modulo 256: int8 bytes too
  });
}

}  // namespace octet
