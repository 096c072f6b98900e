// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/qat_epilogue.h"

#include "kernels/core/cpu.h"

namespace octet::kernels {
namespace {

template <bool kResidual, bool kFloat, class Acc>
inline __attribute__((always_inline)) void row_loop(const ChannelRule& rule, const Acc* acc, const float* residual,
                                                    float* out) {
  const Rounding rounding = rule.rounding;
  for (int k = 0; k < rule.channels; ++k) {
    float t = rescale(static_cast<int32_t>(acc[k]), rule.multiplier[k], rule.bias[k]);
    if (kResidual) t = fmaf(residual[k], rule.residual_multiplier, t);
    out[k] = kFloat ? t : round_centred(t, rounding);
  }
}

template <class Acc>
inline __attribute__((always_inline)) void all_rows(const ChannelRule& rule, const Acc* acc, long rows, float* out) {
  const long c = rule.channels;
  const bool logits = rule.rounding.float_output;
  for (long row = 0; row < rows; ++row, acc += c, out += c) {
    if (rule.residual != nullptr) {
      const float* residual = rule.residual + row * c;
      logits ? row_loop<true, true>(rule, acc, residual, out) : row_loop<true, false>(rule, acc, residual, out);
    } else {
      logits ? row_loop<false, true>(rule, acc, nullptr, out) : row_loop<false, false>(rule, acc, nullptr, out);
    }
  }
}

}  // namespace

OCTET_FMA_CLONES void requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out) {
  all_rows(rule, acc, rows, out);
}

OCTET_FMA_CLONES void requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out) {
  all_rows(rule, acc, rows, out);
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
  if (r.rounding.float_output)
    for (long i = 0; i < count; ++i) out[i] = fmaf(b[i], r.multiplier_b, a[i] * r.multiplier_a);
  else
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
