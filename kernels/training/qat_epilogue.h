// SPDX-License-Identifier: Apache-2.0
// The rounding rule on complete activations of the QAT graph. Codes are float32 "code minus zero point" there, exact
// integers, because that is what the next convolution multiplies. The CPU's functions compute a thread's share; the
// GPU's give the same bits. On the GPU also between codes as engines store them and the real values that training
// multiplies with.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet::kernels {

/// How t becomes an output: the centred code clamp(rint(t) + zero_point, lo, hi) - zero_point, or t itself.
struct Rounding {
  int32_t zero_point = 0, lo = 0, hi = 0;
  bool float_output = false;
};

/// Returns the centred code of t.
OCTET_HOST_DEVICE inline float round_centred(float t, const Rounding& r) {
  return static_cast<float>(round_code(t, r.zero_point, r.lo, r.hi) - r.zero_point);
}

/// The epilogue of a convolution or linear layer: t = fma(float(acc), multiplier[k], bias[k]), then perhaps t =
/// fma(residual, residual_multiplier, t).
struct ChannelRule {
  int channels = 0;
  const float* multiplier = nullptr;  ///< [channels]
  const float* bias = nullptr;        ///< [channels]
  const float* residual = nullptr;    ///< [rows, channels] centred codes, or null
  float residual_multiplier = 0;
  Rounding rounding;
};

/// Applies the epilogue. acc and out are [rows, channels], rows = pixels of all images. acc holds integers within
/// int32.
void requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out);
void requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out);

/// Concat, pooling and separate activations: t = float(x) * multiplier.
struct RescaleRule {
  float multiplier = 0;
  Rounding rounding;
};
void rescale_codes(const RescaleRule& rule, const float* x, long count, float* out);

/// Add: t = fma(float(b), multiplier_b, float(a) * multiplier_a).
struct AddRule {
  float multiplier_a = 0, multiplier_b = 0;
  Rounding rounding;
};
void add_codes(const AddRule& rule, const float* a, const float* b, long count, float* out);

/// Writes the stored bytes (int8 or uint8) of centred codes.
void store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out);

/// Writes the stored bytes of quantize(x).
void quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out);

/// The functions above, computed on the GPU. All pointers are on the device, also the rule's.
void cuda_requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out, CudaStream stream);
void cuda_requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out, CudaStream stream);
void cuda_rescale_codes(const RescaleRule& rule, const float* x, long count, float* out, CudaStream stream);

/// The tensors of cuda_add_codes(), each [count].
struct AddData {
  const float* a = nullptr;
  const float* b = nullptr;
  long count = 0;
  float* out = nullptr;
};
void cuda_add_codes(const AddRule& rule, const AddData& data, CudaStream stream);

void cuda_store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out, CudaStream stream);
void cuda_quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out, CudaStream stream);

/// Codes [rows, stride] on the device, of which the first `channels` of each row are used; rows are pixels of all
/// images.
struct CodeRows {
  const uint8_t* codes = nullptr;
  long rows = 0;
  int channels = 0, stride = 0;
  QParams qparams;
};

/// Writes dequantize(code), rounded to `type`, to y [rows, channels] on the device.
void cuda_real_values(const CodeRows& from, ValueType type, void* y, CudaStream stream);

/// Writes quantize(x) of x [rows, channels] to codes [rows, stride], all on the device.
void cuda_quantize_rows(const CodeRows& to, const float* x, uint8_t* codes, CudaStream stream);

}  // namespace octet::kernels
