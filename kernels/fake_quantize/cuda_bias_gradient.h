// The gradient through fake quantization and that of the bias added before it, in one pass over memory.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"
#include "kernels/fake_quantize/cuda_scale_gradient.h"
#include "kernels/value_type.h"

namespace octet::kernels {

/// Pointers on the device. Channels-last memory: rows of channels.
struct BiasGradient {
  const void* dy = nullptr;       ///< [rows, channels]
  const uint8_t* bits = nullptr;  ///< as written by cuda_fake_quantize
  void* dx = nullptr;             ///< [rows, channels]; may be dy
  float* parts = nullptr;         ///< [bias_gradient_parts(rows, channels), channels], needed while it runs
  float* dbias = nullptr;         ///< [channels]
  long rows = 0;
  int channels = 0;
  ValueType type = ValueType::float32;
  ScaleGradient scale;  ///< with room for the parts of bias_gradient_scale_parts(rows, channels) blocks
};

int bias_gradient_parts(long rows, int channels);
int bias_gradient_scale_parts(long rows, int channels);

/// dx = dy where the bit is set, else 0; dbias = the sum of dx's rows, always added in the same order; in the same pass
/// the gradients of what learns.
void cuda_bias_gradient(const BiasGradient& work, CudaStream stream);

}  // namespace octet::kernels
