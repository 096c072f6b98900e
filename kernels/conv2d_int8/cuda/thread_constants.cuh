// What a thread that ends with neighbouring channels of a pixel keeps of them in registers.
#pragma once

#include "kernels/conv2d_int8/cuda/family.h"

namespace octet::kernels {

/// Of channels k to k + kChannels - 1.
template <int kChannels>
struct ThreadConstants {
  float multiplier[kChannels], bias[kChannels];
  int32_t init[kChannels];

  __device__ ThreadConstants(const CudaChannelConstants& from, int k) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      multiplier[i] = from.multiplier[k + i], bias[i] = from.bias[k + i], init[i] = from.init[k + i];
    }
  }
};

}  // namespace octet::kernels
