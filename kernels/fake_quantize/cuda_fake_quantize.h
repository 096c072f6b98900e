// Fake quantization of activations on the GPU, one pass over memory. The definition is fake_quantize.h; every bit is
// the same.
#pragma once

#include "kernels/activation.h"
#include "kernels/cuda_stream.h"
#include "kernels/fake_quantize/cuda_scale_gradient.h"
#include "kernels/quantize.h"
#include "kernels/value_type.h"

namespace octet::kernels {

/// Pointers on the device. Flat memory: the layout does not matter.
struct FakeQuantization {
  const void* x = nullptr;  ///< [count]
  void* y = nullptr;        ///< [count]; may be x
  /// [ceil(count / 8)] or null. Bit i % 8 of byte i / 8: the gradient of value i passes the activation and the
  /// quantizer.
  uint8_t* bits = nullptr;
  long count = 0;
  ValueType type = ValueType::float32;
  /// Added to x first, in float: bias[i % channels] (channels-last memory), then residual[i]. Null: nothing.
  const float* bias = nullptr;
  int channels = 1;
  const void* residual = nullptr;  ///< [count], of x's type
  Clamp activation;
  const QParams* device_qparams = nullptr;  ///< read when the kernel runs; null: `qparams`
  QParams qparams;
  LearnedPointers learned;    ///< what of those learns
  int16_t* slopes = nullptr;  ///< [count] or null: for the gradients of what learns, and pact's bits
};

/// y = dequantize(quantize(activation(x + bias + residual))).
void cuda_fake_quantize(const FakeQuantization& work, CudaStream stream);

struct FakeQuantizationGradient {
  const void* dy = nullptr;       ///< [count]
  const uint8_t* bits = nullptr;  ///< as written by cuda_fake_quantize
  void* dx = nullptr;             ///< [count]; may be dy
  long count = 0;
  ValueType type = ValueType::float32;
  ScaleGradient scale;  ///< of fake_quantize_backward_parts(count) blocks
};

int fake_quantize_backward_parts(long count);

/// dx = dy where the bit is set, else 0; in the same pass the gradients of what learns.
void cuda_fake_quantize_backward(const FakeQuantizationGradient& work, CudaStream stream);

}  // namespace octet::kernels
