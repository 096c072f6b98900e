// What the wgmma convolution kernels read besides tensors: one struct of plain data, computed on the host. Include it
// in .cu files only.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/cuda/wgmma/tiles.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"
#include "kernels/cuda_stream.h"
#include "kernels/fast_divide.h"

namespace octet::kernels {

/// What a sum starts from: by the kind of border that a pixel's window meets (BorderClasses).
struct BorderStarts {
  const int32_t* start = nullptr;  ///< [row classes, column classes, channels]; null when all are 0
  const uint8_t *row_class = nullptr,
                *column_class = nullptr;  ///< null when there is one class
  int column_classes = 1, channels = 0;
};

/// What becomes of sums.
struct WgmmaOutput {
  CudaChannelConstants constants;  ///< of n_tiles * block_n channels, times kStepScale
  StepRounding steps;
  PackedRounding rounding;  ///< where codes clamp to less than their type holds
  bool in_steps;
  CodeLookup lookup;
  ResidualSteps added;
  const uint8_t* residual;  ///< [pixels, residual_stride] or null
  uint8_t* y;               ///< [pixels, out_stride]
  int pixels, out_c, out_stride, residual_stride;
  BorderStarts starts;
  FastDivide by_image,
      by_row;  ///< pixel -> image; pixel of an image -> output row
};

/// The convolution as a matrix product: pixels x channels, summed over chunks of input channels and taps.
struct WgmmaArgs {
  CUtensorMap x;  ///< [pixels, channels] when dense, else of windows, or of padded images when shifted (im2col)
  CUtensorMap y, residual;  ///< [pixels, channels], in boxes of 64 channels of a tile; not when shifted
  WgmmaOutput end;
  const uint8_t* weight = nullptr;  ///< [n_tiles, chunks, taps, block_n, block_k], swizzled (wgmma_pack)

  Conv2dShape g;
  WgmmaPlan plan;
  int images = 0;
  int tiles = 0;  ///< neighbours share pixels
  bool dense = false;
  FastDivide by_n_tiles, by_stages;
  FastDivide by_padded_image,
      by_padded_row;  ///< shifted: a place -> image; a place of an image -> row
  /// Shifted: from a tap of a window to the next, in its row and in the next row, as matrix_descriptor() counts bytes.
  int to_next_column = 0, to_next_row = 0;
};

/// Launches one of kWgmmaTiles.
using WgmmaLaunch = void (*)(const WgmmaArgs& args, bool x_signed, CudaStream stream);

/// The kernels of kWgmmaTiles are compiled in this many files, part_0.cu and so on: tile t in part t % kWgmmaParts.
inline constexpr int kWgmmaParts = 3;

/// The launch of kWgmmaTiles[tile], of the part that holds it.
template <int kPart>
WgmmaLaunch wgmma_launch(int tile);

}  // namespace octet::kernels
