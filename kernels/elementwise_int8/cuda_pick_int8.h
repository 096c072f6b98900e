// pick_int8() on the GPU, for a batch.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/elementwise_int8/pick_int8.h"

namespace octet::kernels {

/// Tensors on the device: x [images, in_h, in_w, in_stride], y [images, out_h, out_w, out_stride], of which `channels`
/// are written.
struct CudaPickData {
  int images = 1;
  long x_image_stride = 0;  ///< bytes of one image of x: its height is not in the shape
  const uint8_t* x = nullptr;
  uint8_t* y = nullptr;
};

/// Throws Error(promise) when the launch fails.
void cuda_pick_int8(const PickShape& shape, const CudaPickData& data, CudaStream stream);

}  // namespace octet::kernels
