// What the mma convolution kernels read besides tensors: one struct of plain data, computed on the host. Include it in
// .cu files only.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/mma/tiles.h"
#include "kernels/cuda_stream.h"
#include "kernels/fast_divide.h"

namespace octet::kernels {

/// The convolution as a matrix product: pixels x channels, summed over chunks of 16 bytes, which lie in the order
/// (kernel row, kernel column, 16 input channels).
struct MmaArgs {
  ConvOutput out;                   ///< constants of n_tiles * block_n channels
  const uint8_t* weight = nullptr;  ///< [n_tiles, k_tiles, block_n, block_k], swizzled (mma_pack)
  const uint8_t* x = nullptr;       ///< [images, H, W, in_stride]

  Conv2dShape g;
  int in_chunks = 0;                                   ///< of 16 input channels
  int image_bytes = 0, row_step = 0, column_step = 0;  ///< bytes: of an image; to the next kernel row, column
  FastDivide by_image, by_row;                         ///< pixel -> image; pixel of an image -> output row
  FastDivide by_kernel_w, by_in_chunks;                ///< chunk of the sum -> kernel tap; tap -> kernel row
  FastDivide by_dilation_h, by_dilation_w;
  bool dense = false;         ///< pixel i of y reads pixel i of x alone: 1x1, stride 1, no padding
  bool padded = false;        ///< some windows leave the image
  bool beside = false;        ///< CudaConv2dData::beside
  uint32_t padding_word = 0;  ///< four times the zero point: what x holds outside the image

  int n_tiles = 0, k_tiles = 0;
  FastDivide by_n_tiles;
  int k_per_part = 0, k_extra = 0;  ///< steps of a part; the first k_extra parts have one more
  SplitSum split;
  bool in_cluster = false;  ///< the blocks of a split sum's parts are a cluster and use neither counters nor memory
};

/// Launches one of kMmaTiles on `blocks` tiles of the output.
using MmaLaunch = void (*)(const MmaArgs& args, unsigned blocks, bool x_signed, CudaStream stream);

/// The kernels of kMmaTiles are compiled in this many files, part_0.cu and so on: tile t in part t % kMmaParts.
inline constexpr int kMmaParts = 3;

/// The launch of kMmaTiles[tile], of the part that holds it.
template <int kPart>
MmaLaunch mma_launch(int tile);

}  // namespace octet::kernels
