// The rounding rule of kernels/quantize.h over whole activations of the QAT graph. Codes travel as float32 "code minus
// zero point", which is what the next convolution multiplies; all are integers, exactly.
#pragma once

#include <cstdint>

namespace octet {

/// What turns t into the output: a centred code clamp(rint(t) + zero_point, lo, hi) - zero_point, or t itself.
struct Rounding {
  int32_t zero_point = 0, lo = 0, hi = 0;
  bool float_output = false;
};

/// The epilogue of a convolution or linear, channel by channel.
struct ChannelRule {
  int channels = 0;
  const float* multiplier = nullptr;  ///< [channels]
  const float* bias = nullptr;        ///< [channels]
  const float* residual = nullptr;    ///< centred codes like the output, or null
  float residual_multiplier = 0;
  Rounding rounding;
};

/// acc, out: [rows, channels], rows = pixels of all images. acc holds integers within int32.
void requantize(const ChannelRule& rule, const float* acc, int64_t rows, float* out);
void requantize(const ChannelRule& rule, const double* acc, int64_t rows, float* out);

/// t = float(x) * multiplier: concat, pools and an activation on its own. x: centred codes or sums of them.
void rescale_codes(const Rounding& rounding, float multiplier, const float* x, int64_t count, float* out);

/// t = fma(float(b), multiplier_b, float(a) * multiplier_a).
struct AddRule {
  float multiplier_a = 0, multiplier_b = 0;
  Rounding rounding;
};
void add_codes(const AddRule& rule, const float* a, const float* b, int64_t count, float* out);

/// Stored bytes (int8 or uint8) of centred codes.
void store_codes(const float* centred, int64_t count, int32_t zero_point, uint8_t* out);

}  // namespace octet
