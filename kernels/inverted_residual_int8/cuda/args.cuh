// What the kernels of inverted residuals read besides tensors: one struct of plain data, computed on the host. Include
// it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/cuda_stream.h"
#include "kernels/fast_divide.h"
#include "kernels/inverted_residual_int8/cuda/code_steps.h"
#include "kernels/inverted_residual_int8/cuda/plan.h"

namespace octet::kernels {

struct InvertedArgs {
  ConvOutput out;  ///< of the narrowing convolution
  CodeSteps hidden, windows;
  InvertedChunk chunk;
  InvertedTiles tiles;
  InvertedShared shared;
  const uint8_t* chunks;  ///< [tiles.chunks, chunk.bytes]
  const uint8_t* x;       ///< [images, H, W, in_stride]

  int images, in_h, in_w, in_stride, out_h, out_w, pad_h, pad_w;
  int tile_w, strips, tile_images, groups, parts, turns;
  FastDivide by_tile_w, by_strips, by_halo_w;
  FastDivide by_x_pieces;   ///< 16 bytes of a pixel's input channels
  bool has_expand, flip_x;  ///< x is int8
  uint32_t outside;         ///< four codes of real 0, hidden
};

using InvertedLaunch = void (*)(const InvertedArgs& args, CudaStream stream);

/// The launch for output channels in groups of 32, at a stride, with rows of a warp; null where there is none.
template <int kQuads>
InvertedLaunch inverted_launch(int stride, int rows);
/// The same for blocks that take turns.
template <int kQuads>
InvertedLaunch inverted_turns_launch(int stride, int rows);

}  // namespace octet::kernels
