// Max and average pooling on the GPU, for a batch: the bytes of pool_int8.h.
#pragma once

#include <cstddef>

#include "kernels/cuda_stream.h"
#include "kernels/pool_int8/pool_int8.h"

namespace octet::kernels {

/// Tensors on the device, `images` images one after another: x [images, in_h, in_w, in_stride], y [images, out_h,
/// out_w, out_stride], of which exactly `channels` of each pixel are written.
struct CudaPoolData {
  int images = 1;
  const void* x = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;  ///< cuda_avg_pool_workspace() bytes, if that is not 0
};

/// Device scratch of an average over a wide window, of one launch at a time (cuda_workspace.h); often 0.
size_t cuda_avg_pool_workspace(const PoolShape& shape, int images);

/// Fast when strides and pointers are multiples of 16; lanes between channels and stride may be read then.
/// Throws Error(promise) when the launch fails.
void cuda_max_pool_int8(const PoolShape& shape, const MaxPoolParams& params, const CudaPoolData& data,
                        CudaStream stream);
void cuda_avg_pool_int8(const PoolShape& shape, const AvgPoolParams& params, const CudaPoolData& data,
                        CudaStream stream);

}  // namespace octet::kernels
