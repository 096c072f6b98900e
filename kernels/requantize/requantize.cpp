#include "kernels/requantize/requantize.h"

// The inner loops are compiled for several instruction sets and picked at start; the arithmetic is the same in all: fma
// and rint round once, by definition. kernels/clones.h has no fma in its sets, which is most of the work here.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define OCTET_FMA_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OCTET_FMA_CLONES
#endif

namespace octet::kernels {
namespace {

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
      out[k] = round_centred(fmaf(residual[k], rule.residual_multiplier, t), rounding);
    }
  } else {
    for (int k = 0; k < rule.channels; ++k)
      out[k] = round_centred(rescale(static_cast<int32_t>(acc[k]), rule.multiplier[k], rule.bias[k]), rounding);
  }
}

}  // namespace

OCTET_FMA_CLONES void requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out) {
  const long c = rule.channels;
  for (long row = 0; row < rows; ++row)
    row_loop(rule, acc + row * c, rule.residual ? rule.residual + row * c : nullptr, out + row * c);
}

OCTET_FMA_CLONES void requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out) {
  const long c = rule.channels;
  for (long row = 0; row < rows; ++row)
    row_loop(rule, acc + row * c, rule.residual ? rule.residual + row * c : nullptr, out + row * c);
}

OCTET_FMA_CLONES void rescale_codes(const RescaleRule& rule, const float* x, long count, float* out) {
  const RescaleRule r = rule;
  if (r.rounding.float_output)
    for (long i = 0; i < count; ++i) out[i] = x[i] * r.multiplier;
  else
    for (long i = 0; i < count; ++i) out[i] = round_centred(x[i] * r.multiplier, r.rounding);
}

OCTET_FMA_CLONES void add_codes(const AddRule& rule, const float* a, const float* b, long count, float* out) {
  const AddRule r = rule;
  for (long i = 0; i < count; ++i)
    out[i] = round_centred(fmaf(b[i], r.multiplier_b, a[i] * r.multiplier_a), r.rounding);
}

OCTET_FMA_CLONES void store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out) {
  for (long i = 0; i < count; ++i)
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(centred[i]) + zero_point);  // modulo 256: int8 bytes too
}

OCTET_FMA_CLONES void quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out) {
  const QParams q = qparams;
  for (long i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(quantize(x[i], q));
}

}  // namespace octet::kernels
