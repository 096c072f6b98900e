// Products of images on the GPU, for a batch: the bytes of matmul_int8.h.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/matmul_int8/matmul_int8.h"

namespace octet::kernels {

/// Tensors on the device: a [images, rows, a_stride], b [images, b_rows, b_stride], y [images, rows, y_stride], of
/// which exactly heads * columns of each pixel are written.
struct CudaMatmulData {
  int images = 1;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
};

/// Throws Error(promise) when the launch fails.
void cuda_matmul_int8(const MatmulShape& shape, const MatmulParams& params, const CudaMatmulData& data,
                      CudaStream stream);

}  // namespace octet::kernels
