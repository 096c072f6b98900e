// Bilinear resizing on the GPU, for a batch: the bytes of bilinear_int8.h.
#pragma once

#include "kernels/bilinear_int8/bilinear_int8.h"
#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// Tensors on the device: x [images, in_h, in_w, in_stride], y [images, out_h, out_w, out_stride], of which exactly
/// `channels` of each pixel are written.
struct CudaBilinearData {
  int images = 1;
  const void* x = nullptr;
  void* y = nullptr;
};

/// Four channels a thread when x and its stride are multiples of 4; lanes between channels and stride may be read
/// then. Throws Error(promise) when the launch fails.
void cuda_bilinear_int8(const BilinearShape& shape, const BilinearParams& params, const CudaBilinearData& data,
                        CudaStream stream);

}  // namespace octet::kernels
