// SPDX-License-Identifier: Apache-2.0
// BatchNorm in training and the fake quantization of its result, in as few passes over memory as there can be:
//
//   normal = (x - mean) / sqrt(variance + epsilon) * weight + bias     rounded to x's type, as LibTorch's BatchNorm is
//   y      = dequantize(quantize(activation(normal + residual)))       from a sum in float, as in fake_quantize.h
//
// with mean and variance of all rows, by channel; where a function of one value (SiLU ...) and its own quantizer
// follow, y = table[that code], of 256 values at most.
//
// Forward one pass reads x for the statistics and one reads x and the residual and writes y, and a bit a value where
// the gradient passes. Backward one pass reads what the next one would need anyway, for two sums a channel; the next
// writes dx. All sums are added in a fixed order.
//
// These functions are for GPUs, float16 and bfloat16, and channels-last with channels in eights, where the share is the
// whole batch of at least two rows. All pointers are on the device; those of activations, their gradients, `numbers`
// and `slopes` are multiples of 16 bytes. Scratch `parts` is float [batch_norm_parts(rows, channels), 2, channels].
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "kernels/training/batch_norm.h"
#include "kernels/training/observe.h"

namespace octet::kernels {

/// The numbers of a channel in `numbers` below, float [kNormNumbers, channels]; the factor is 1 / sqrt(variance +
/// epsilon).
enum NormNumber { kNormMean, kNormFactor, kNormGain, kNormOffset, kNormNumbers };

/// A function of a quantized value, and the quantizer of its result, by code - quant_min: at most 256 codes.
struct FunctionTable {
  float value[256];  ///< dequantize(quantize(f(dequantize(code))))
  float slope[256];  ///< its gradient: f'(dequantize(code)), and 0 where its own quantizer or activation lets none pass
};

struct NormStatistics {
  BatchNormShare x;
  const float* weight = nullptr;  ///< [channels], like all but the scratch
  const float* bias = nullptr;
  float* running_mean = nullptr;  ///< moved by `momentum` towards the batch's mean
  float* running_var = nullptr;   ///< moved likewise towards its variance, divided by rows - 1
  float momentum = 0, epsilon = 0;
  float* parts = nullptr;    ///< scratch
  float* numbers = nullptr;  ///< written for the passes below
};

/// Finds the statistics of x, in two launches.
void cuda_norm_statistics(const NormStatistics& work, CudaStream stream);

/// The tensors of the pass that writes y.
struct NormQuantization {
  BatchNormShare x;
  const float* numbers = nullptr;  ///< from cuda_norm_statistics()
  const void* residual = nullptr;  ///< [rows, channels] of x's type, or null
  Clamp activation;
  const QParams* device_qparams = nullptr;  ///< read when the kernel runs; null: `qparams`. At most 8 bits a code
  QParams qparams;
  const FunctionTable* function = nullptr;  ///< or null: applied to the codes. Then without residual
  void* y = nullptr;                        ///< [rows, channels]; not x, which the backward pass needs
  uint8_t* bits = nullptr;  ///< [ceil(rows * channels / 8)] or null: as in FakeQuantization, before the function
};

/// Moves the range of `edge`, and its qparams, to follow what cuda_norm_quantize() would round, as cuda_observe() does.
/// y and bits are not read.
void cuda_norm_observe(const NormQuantization& work, EdgeQuantizer* edge, CudaStream stream);

/// Writes y and bits.
void cuda_norm_quantize(const NormQuantization& work, CudaStream stream);

struct NormQuantizationGradient {
  BatchNormShare x;
  const void* dy = nullptr;        ///< [rows, channels] of x's type
  const void* also = nullptr;      ///< likewise or null: another reader's gradient, added to dy and the sum rounded
  long also_rows = 1;              ///< rows that share a row of `also`, [ceil(rows / also_rows), channels]
  const uint8_t* bits = nullptr;   ///< from cuda_norm_quantize()
  const float* numbers = nullptr;  ///< from cuda_norm_statistics()
  const float* weight = nullptr;   ///< [channels]
  const FunctionTable* function = nullptr;  ///< as in the forward pass, whose codes are then computed again
  const QParams* device_qparams = nullptr;  ///< with a function, as in the forward pass; null: `qparams`
  QParams qparams;
  Clamp activation;
  void* masked = nullptr;    ///< written where not null: [rows, channels], the gradient of the residual
  float* parts = nullptr;    ///< scratch
  float* slopes = nullptr;   ///< scratch [3, channels]
  float* dweight = nullptr;  ///< written: [channels]
  float* dbias = nullptr;    ///< written: [channels]
  void* dx = nullptr;        ///< written: [rows, channels]
};

/// Writes all gradients, in three launches. With `masked` the second pass reads that, else what the first has read.
void cuda_norm_quantize_gradient(const NormQuantizationGradient& work, CudaStream stream);

}  // namespace octet::kernels
