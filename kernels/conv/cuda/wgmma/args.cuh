// SPDX-License-Identifier: Apache-2.0
// The arguments of the wgmma convolution kernels: plain data, computed on the host. Include it in .cu files only.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/rounding.h"
#include "kernels/conv/cuda/wgmma/wgmma.h"
#include "kernels/core/cuda.h"
#include "kernels/core/divide.h"

namespace octet::kernels {

/// The start values of sums, by the border that a pixel's window reaches (BorderClasses).
struct BorderStarts {
  const int32_t* start = nullptr;  ///< [row classes, column classes, channels]; null if all are 0
  const uint8_t *row_class = nullptr, *column_class = nullptr;  ///< null if there is one class
  int column_classes = 1, channels = 0;
};

/// The output tensor, and how sums become its codes.
struct WgmmaOutput {
  CudaChannelConstants constants;  ///< for n_tiles * block_n channels, multiplied by kStepScale
  StepRounding steps;
  PackedRounding rounding;  ///< used if StepRounding cannot be
  bool in_steps;            ///< whether `steps` is used
  CodeLookup lookup;
  const uint8_t* channel_tables;  ///< [out_c rounded up to 16, 256]: codes of a channel are looked up there; or null
  ResidualSteps added;
  const uint8_t* residual;  ///< [pixels, residual_stride] or null
  uint8_t* y;               ///< [pixels, out_stride]
  int pixels, out_c, out_stride, residual_stride;
  BorderStarts starts;
  FastDivide by_image, by_row;  ///< pixel -> image; pixel of an image -> output row
};

/// The convolution as a matrix product: pixels x channels, summed over chunks of input channels and taps.
struct WgmmaArgs {
  CUtensorMap x;            ///< [pixels, channels] if dense, padded images if shifted, else windows (im2col)
  CUtensorMap y, residual;  ///< [pixels, channels] in boxes of 64 channels of a tile; unused if shifted
  WgmmaOutput end;
  const uint8_t* weight = nullptr;  ///< [n_tiles, chunks, taps, block_n, block_k], swizzled (wgmma_pack)

  Conv2dShape g;
  WgmmaPlan plan;
  int images = 0;
  int tiles = 0;  ///< neighbouring tiles share pixels
  bool dense = false;
  FastDivide by_n_tiles, by_stages;
  FastDivide by_padded_image, by_padded_row;  ///< if shifted: padded pixel -> image; padded pixel of an image -> row
  /// If shifted: the step from a tap to the next one in its row, and to the first of the next row, in the units of
  /// matrix_descriptor().
  int to_next_column = 0, to_next_row = 0;
};

/// Launches one of kWgmmaTiles.
using WgmmaLaunch = void (*)(const WgmmaArgs& args, bool x_signed, CudaStream stream);

/// Returns the launch of kWgmmaTiles[tile], which must be compiled in part kPart.
template <int kPart>
WgmmaLaunch wgmma_launch(int tile);

}  // namespace octet::kernels
