// What max and average pooling on the GPU share. Include it in .cu files only.
#pragma once

#include "kernels/cuda_vector.cuh"
#include "kernels/pool_int8/cuda_pool_int8.h"

namespace octet::kernels {

struct PoolArgs {
  PoolShape s;
  unsigned threads, vectors;  ///< vectors of codes in all, and of one pixel
  const uint8_t* x;
  uint8_t* y;
};

/// Output pixel `pixel` of a batch and the part of its window that lies inside the image.
struct Window {
  const uint8_t* from;  ///< channel 0 of the first code inside
  int rows, columns;

  __device__ Window(const PoolArgs& a, unsigned pixel) {
    const PoolShape& s = a.s;
    const unsigned image = pixel / s.out_w / s.out_h;
    const int top = static_cast<int>(pixel / s.out_w % s.out_h) * s.stride_h - s.pad_h;
    const int left = static_cast<int>(pixel % s.out_w) * s.stride_w - s.pad_w;
    const int first_row = max(top, 0), first_column = max(left, 0);
    rows = max(min(top + s.kernel_h, s.in_h) - first_row, 0);
    columns = max(min(left + s.kernel_w, s.in_w) - first_column, 0);
    from = a.x + ((static_cast<ptrdiff_t>(image) * s.in_h + first_row) * s.in_w + first_column) * s.in_stride;
  }
};

struct AverageArgs {
  UnsignedEdge x;
  float multiplier;
  CudaRounding rounding;
  bool float_output;

  /// `sum` of `codes` flipped codes.
  __device__ float value(int32_t sum, int codes) const {
    return static_cast<float>(sum - codes * x.zero_point) * multiplier;
  }
  __device__ void store(float t, uint8_t* y, ptrdiff_t index) const {
    if (float_output) {
      reinterpret_cast<float*>(y)[index] = t;
    } else {
      y[index] = static_cast<uint8_t>(rounding(t));
    }
  }
};

/// sum[i] += code i
template <int kCodes>
__device__ void add_codes(const CodeVector<kCodes>& codes, uint32_t flip, int32_t* sum) {
#pragma unroll
  for (int i = 0; i < kCodes; ++i) sum[i] = dot4<false>(codes.word[i / 4] ^ flip, 1u << 8 * (i % 4), sum[i]);
}

/// Averages over many codes, such as global ones, split a window among threads and blocks.
inline bool is_wide_window(const PoolShape& s) { return s.kernel_h * s.kernel_w >= 16; }

/// Strides and pointers are multiples of 16.
void wide_avg_pool_int8(const PoolShape& shape, const AverageArgs& average, const CudaPoolData& data,
                        CudaStream stream);

}  // namespace octet::kernels
