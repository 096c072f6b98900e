// A first layer together with the max-pool that reads it, on the GPU: what the convolution writes is never in memory.
// The bytes are those of the two kernels one after the other (conv2d_int8.h, pool_int8.h). No CUDA types here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/cuda_stream.h"
#include "kernels/pool_int8/pool_int8.h"

namespace octet::kernels {

/// The pool reads what the convolution writes: channels, height, width and codes agree. What lies between them has no
/// stride: it is never in memory.
struct ConvMaxPool {
  Conv2dShape conv;
  Conv2dParams conv_params;
  Conv2dWeights weights;
  PoolShape pool;
  MaxPoolParams pool_params;
};

/// One way to run it.
struct CudaConvMaxPool {
  int rows = 1;      ///< of the pool's output that a tile has
  std::string name;  ///< "mma_image_max_pool_7_r4": window's rows that the kernel is made for, rows of a tile
};

/// All that can run it, the likely fastest first. Empty unless the convolution has up to 4 channels
/// in (in 4 bytes) and a window of at most 7 x 8, is not dilated, moves by 2 and has no residual, and the pool is 3 x
/// 3, moves by 2, and is padded by at most 1.
std::vector<CudaConvMaxPool> cuda_conv_max_pool_choices(const ConvMaxPool& layers);

/// What the kernel reads besides tensors, to be copied to the device as it is (256-byte aligned); the same for all.
std::vector<uint8_t> cuda_conv_max_pool_pack(const ConvMaxPool& layers);

/// Tensors on the device as CudaConv2dData has them: x of the convolution, y of the pool.
struct CudaConvMaxPoolData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_conv_max_pool_pack
  const void* x = nullptr;
  void* y = nullptr;
};

/// Allocates nothing and never synchronizes. Throws Error(promise) when the launch fails.
void cuda_conv_max_pool(const CudaConvMaxPool& choice, const ConvMaxPool& layers, const CudaConvMaxPoolData& data,
                        CudaStream stream);

}  // namespace octet::kernels
