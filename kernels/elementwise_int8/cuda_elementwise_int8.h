// add, mul and requantize on the GPU, for a batch: the bytes of elementwise_int8.h.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/elementwise_int8/elementwise_int8.h"

namespace octet::kernels {

/// Tensors on the device, `images` images one after another: [images, shape.pixels, stride].
struct CudaElementwiseData {
  int images = 1;
  const void* x = nullptr;
  const void* other = nullptr;  ///< of an add or mul; of a mul by one pixel [images, stride]
  void* y = nullptr;            ///< exactly `channels` of each pixel are written, whether a slice or not
};

/// Fast when strides and pointers are multiples of 16; lanes between channels and stride may be read then.
/// Throws Error(promise) when the launch fails.
void cuda_requantize_int8(const ElementwiseShape& shape, const RequantizeParams& params,
                          const CudaElementwiseData& data, CudaStream stream);
void cuda_add_int8(const ElementwiseShape& shape, const AddParams& params, const CudaElementwiseData& data,
                   CudaStream stream);
void cuda_mul_int8(const ElementwiseShape& shape, const MulParams& params, const CudaElementwiseData& data,
                   CudaStream stream);

}  // namespace octet::kernels
