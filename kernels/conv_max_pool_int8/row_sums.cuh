// A thread's sums of a row of the convolution: how they come to be, and which of them a pool sees. Include it in .cu
// files only.
#pragma once

#include <climits>
#include <cstdint>

#include "kernels/conv2d_int8/cuda/ptx.cuh"
#include "kernels/conv_max_pool_int8/cuda_tiles.h"

namespace octet::kernels::conv_max_pool {

inline constexpr int kLowest = INT_MIN;  // a sum that never wins

/// A thread's sums of one row: [four mma][left column's two channels, right column's].
struct RowSums {
  int32_t value[4][4];

  __device__ __forceinline__ void fill(int32_t with) {
#pragma unroll
    for (int i = 0; i < 16; ++i) value[i / 4][i % 4] = with;
  }
  /// For a row outside the image. A branch: the empty instruction keeps it from becoming a choice for every value.
  __device__ __forceinline__ void leave_out(bool outside) {
    if (outside) {
      asm volatile("");
      fill(kLowest);
    }
  }
  /// For columns outside it.
  __device__ __forceinline__ void leave_out(bool left, bool right) {
    asm volatile("");
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (left) value[i / 2][i % 2] = kLowest;
      if (right) value[i / 2][2 + i % 2] = kLowest;
    }
  }
  __device__ __forceinline__ void keep_larger(const RowSums& other) {
#pragma unroll
    for (int i = 0; i < 16; ++i) value[i / 4][i % 4] = max(value[i / 4][i % 4], other.value[i / 4][i % 4]);
  }
  template <bool kSigned>
  __device__ __forceinline__ void multiply_add_row(const uint32_t (&codes)[4], const uint4 (&weight)[2]) {
    multiply_add<kSigned>(value[0], codes, weight[0].x, weight[0].y);
    multiply_add<kSigned>(value[1], codes, weight[0].z, weight[0].w);
    multiply_add<kSigned>(value[2], codes, weight[1].x, weight[1].y);
    multiply_add<kSigned>(value[3], codes, weight[1].z, weight[1].w);
  }
};

/// A thread's words of one row of the picture: two of its left pixel's window and the same two of its right one's.
__device__ __forceinline__ void load_row(const uint32_t* from, uint32_t (&codes)[4]) {
  codes[0] = from[0], codes[1] = from[kStride], codes[2] = from[4], codes[3] = from[4 + kStride];
}

}  // namespace octet::kernels::conv_max_pool
