// The rounding rule over whole activations of the QAT graph, for one thread's share. Codes travel as float32 "code
// minus zero point", which is what the next convolution multiplies; all are integers, exactly.
#pragma once

#include <cstdint>

#include "kernels/quantize.h"

namespace octet::kernels {

/// What turns t into the output: a centred code clamp(rint(t) + zero_point, lo, hi) - zero_point, or t itself.
struct Rounding {
  int32_t zero_point = 0, lo = 0, hi = 0;
  bool float_output = false;
};

/// The centred code of t.
OCTET_HOST_DEVICE inline float round_centred(float t, const Rounding& r) {
  return static_cast<float>(round_code(t, r.zero_point, r.lo, r.hi) - r.zero_point);
}

/// The epilogue of a convolution or linear, channel by channel.
struct ChannelRule {
  int channels = 0;
  const float* multiplier = nullptr;  ///< [channels]
  const float* bias = nullptr;        ///< [channels]
  const float* residual = nullptr;    ///< [rows, channels] centred codes, or null
  float residual_multiplier = 0;
  Rounding rounding;
};

/// acc, out: [rows, channels], rows = pixels of all images. acc holds integers within int32.
void requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out);
void requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out);

/// t = float(x) * multiplier: concat, pools and an activation on its own.
struct RescaleRule {
  float multiplier = 0;
  Rounding rounding;
};
void rescale_codes(const RescaleRule& rule, const float* x, long count, float* out);

/// t = fma(float(b), multiplier_b, float(a) * multiplier_a).
struct AddRule {
  float multiplier_a = 0, multiplier_b = 0;
  Rounding rounding;
};
void add_codes(const AddRule& rule, const float* a, const float* b, long count, float* out);

/// Stored bytes (int8 or uint8) of centred codes.
void store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out);

/// Stored bytes of quantize(x).
void quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out);

}  // namespace octet::kernels
