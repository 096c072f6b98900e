// SPDX-License-Identifier: Apache-2.0
// What squeeze-and-excite needs in training, on the GPU, channels-last: means of an image's channels, and the fake
// quantization of products with a factor for each image and channel:
//
//   y = dequantize(quantize(activation(product))),  product = x * factor   rounded to x's type, as LibTorch's is
//
// in one pass forward and one backward. All sums are in float, added in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet::kernels {

/// The shape of x [images, pixels, channels]. Channels are in eights, all tensors aligned to 16 bytes, types of 16
/// bits, and there is at least one pixel.
struct ImageChannels {
  long images = 0;
  int pixels = 0, channels = 0;
  ValueType type = ValueType::float16;
};

/// Returns the first dimension of the scratch `parts` below, float [image_parts(shape), channels].
long image_parts(const ImageChannels& shape);

/// Writes the means over the pixels to y [images, channels].
void cuda_image_means(const ImageChannels& shape, const void* x, float* parts, void* y, CudaStream stream);

struct ExciteQuantization {
  ImageChannels shape;
  const void* x = nullptr;
  const void* factor = nullptr;  ///< [images, channels] of x's type
  Clamp activation;
  const QParams* device_qparams = nullptr;  ///< read when the kernel runs; null: `qparams`. At most 8 bits a code
  QParams qparams;
  void* y = nullptr;        ///< as x
  uint8_t* bits = nullptr;  ///< [images * pixels * channels / 8] or null: as in FakeQuantization
};

/// Writes y and bits.
void cuda_excite_quantize(const ExciteQuantization& work, CudaStream stream);

struct ExciteGradient {
  ImageChannels shape;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* factor = nullptr;   ///< as in the forward pass
  const uint8_t* bits = nullptr;  ///< from cuda_excite_quantize()
  float* parts = nullptr;         ///< scratch
  void* dx = nullptr;             ///< written: as x
  void* dfactor = nullptr;        ///< written: [images, channels]
};

/// Writes both gradients, in two launches.
void cuda_excite_gradient(const ExciteGradient& work, CudaStream stream);

}  // namespace octet::kernels
