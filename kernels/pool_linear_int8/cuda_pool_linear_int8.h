// A network's end, global average and linear layer, in one kernel for few images: what lies between them is never in
// memory, and a row of weights is read before the kernel waits for the one before it. The definition are the two
// operators, one after the other. No CUDA types here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "kernels/pool_int8/pool_int8.h"

namespace octet::kernels {

/// The linear layer (a 1x1 convolution of a 1x1 image) reads what the average writes. Its input's stride means nothing.
struct PoolLinear {
  PoolShape pool;
  AvgPoolParams pool_params;
  Conv2dShape linear;
  Conv2dParams linear_params;
  Conv2dWeights weights;
};

/// One way to run it.
struct CudaPoolLinear {
  int cluster = 1;  ///< thread blocks that share the averages, each a part of the channels

  std::string name() const;  ///< "avg_pool_linear", "avg_pool_linear_c8" of clusters of 8
};

/// All that can run it on `images` images, the likely fastest first. Empty unless the average is that of whole images
/// and writes codes, its input's stride is a multiple of 16, there are at most 2,048 channels in and no residual, and
/// there are at most kPoolLinearImages images: each reads all weights.
inline constexpr int kPoolLinearImages = 8;
std::vector<CudaPoolLinear> cuda_pool_linear_choices(const PoolLinear& layers, int images, const CudaGpu& gpu);

/// What the kernel reads besides tensors, to be copied to the device as it is (256-byte aligned); the same for all.
std::vector<uint8_t> cuda_pool_linear_pack(const PoolLinear& layers);

/// Tensors on the device: x [images, H, W, in_stride] codes; y [images, out_stride] codes, or float32.
struct CudaPoolLinearData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_pool_linear_pack
  const void* x = nullptr;
  void* y = nullptr;
};

/// Allocates nothing and never synchronizes. Throws Error(promise) when the launch fails.
void cuda_pool_linear(const CudaPoolLinear& choice, const PoolLinear& layers, const CudaPoolLinearData& data,
                      CudaStream stream);

}  // namespace octet::kernels
