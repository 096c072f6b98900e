// What the mma convolution kernels read besides tensors: one struct of plain data, computed on the host. Include it in
// .cu files only.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/cuda/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/mma/tiles.h"
#include "kernels/cuda_stream.h"
#include "kernels/fast_divide.h"

namespace octet::kernels {

/// The convolution as a matrix product: pixels x channels, summed over chunks of 16 bytes, which lie in the order
/// (kernel row, kernel column, 16 input channels).
struct MmaArgs {
  CudaEpilogue epilogue;
  CudaChannelConstants constants;     ///< [n_tiles * block_n]
  const uint8_t* weight = nullptr;    ///< [n_tiles, k_tiles, block_n, block_k], swizzled (mma_pack)
  const uint8_t* x = nullptr;         ///< [images, H, W, in_stride]
  const uint8_t* residual = nullptr;  ///< [pixels, residual_stride] or null
  void* y = nullptr;                  ///< [pixels, out_stride]

  Conv2dShape g;
  int pixels = 0;                                      ///< of the output
  int in_chunks = 0;                                   ///< of 16 input channels
  int image_bytes = 0, row_step = 0, column_step = 0;  ///< bytes: of an image; to the next kernel row, column
  FastDivide by_image, by_row;                         ///< pixel -> image; pixel of an image -> output row
  FastDivide by_kernel_w, by_in_chunks;                ///< chunk of the sum -> kernel tap; tap -> kernel row
  bool dense = false;         ///< pixel i of y reads pixel i of x alone: 1x1, stride 1, no padding
  bool padded = false;        ///< some windows leave the image
  uint32_t padding_word = 0;  ///< four times the zero point: what x holds outside the image

  int n_tiles = 0, k_tiles = 0;
  FastDivide by_n_tiles;
  int split = 1, k_per_part = 0, k_extra = 0;  ///< steps of a part; the first k_extra parts have one more
  int32_t* counters = nullptr;                 ///< [tiles]: parts that arrived
  int32_t* partial = nullptr;                  ///< [tiles, split, block_m * block_n]
};

/// Launches kMmaTiles[tile] on `blocks` tiles of the output. Defined for each tile in large.cu, medium.cu or small.cu.
template <int tile>
void launch_mma(const MmaArgs& args, unsigned blocks, bool x_signed, CudaStream stream);

}  // namespace octet::kernels
