// Copies codes between layouts on the GPU: a flatten closes the gaps between pixels.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// Strides in bytes. A flatten of [H, W, C]: pixels = H * W, y_stride = C, y_image_stride = the stride of H * W * C
/// channels.
struct CopyCodesShape {
  int images = 1, pixels = 0, channels = 0;
  int x_stride = 0, y_stride = 0;               ///< between neighbouring pixels
  long x_image_stride = 0, y_image_stride = 0;  ///< between neighbouring images
};

/// y[image][pixel][c] = x[image][pixel][c]; bytes in gaps keep their values. Throws Error(promise) when the launch
/// fails.
void cuda_copy_codes(const CopyCodesShape& shape, const void* x, void* y, CudaStream stream);

}  // namespace octet::kernels
