// The wgmma family's host side (Hopper, compute capability 9.0 only): which tiles can run a convolution, how the work
// falls into tiles, what weights and starts of sums look like. Internal to this folder and its tests.
#pragma once

#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/wgmma/tiles.h"

namespace octet::kernels {

/// How a convolution falls into tiles, and what lies where in shared memory. The sum runs over chunks of block_k input
/// channels and, in each, over the taps.
struct WgmmaPlan {
  int m_tiles = 0, n_tiles = 0, chunks = 0, taps = 0;
  /// Shifted: of an image as its pixels follow each other in a stage: padded on the left and on top alone, since what a
  /// window reaches beyond the right side is the next row's padding.
  int padded_w = 0, padded_h = 0;
  int x_rows = 0, x_bytes = 0;  ///< input of a stage
  int stage_bytes = 0;          ///< input, and weights of a step when they stream
  int held_bytes = 0;           ///< weights that stay
  /// Places of each group where its tiles end, to which their residual comes: 2^ends_log.
  int ends = 0, ends_log = 0, end_bytes = 0;
  int stages = 0;  ///< that fit beside all these; fewer than 2: the convolution cannot be run so

  WgmmaPlan(const WgmmaTile& tile, const Conv2dShape& shape, int images, bool residual);
  int tiles() const { return m_tiles * n_tiles; }
  int shared_bytes() const { return held_bytes + stages * stage_bytes + ends * end_bytes + kWgmmaBarrierBytes + 1024; }
};

/// Output rows (or columns) by which taps of their windows lie inside the image. What lies outside is 0 in shared
/// memory, not the zero point, so that -(zero point of x) * sum(w), which a sum starts from, counts only taps inside.
struct BorderClasses {
  static constexpr int kMaxTaps = 32, kMaxClasses = 32;
  std::vector<uint32_t> taps;      ///< of each class: bit r is tap r
  std::vector<uint8_t> of_output;  ///< the class of each output row

  BorderClasses(int in, int out, int kernel, int stride, int pad, int dilation);
};

/// Where things lie behind the constants (family.h) in packed data.
struct WgmmaPacked {
  BorderClasses rows, columns;
  int channels = 0;  ///< a multiple of block_n
  /// Byte offsets: starts [row classes, column classes, channels] int32; classes of output rows and columns, a byte
  /// each; weights [tiles of channels, chunks, taps, step_bytes()]: of a dense tile [block_n, block_k], swizzled.
  size_t starts = 0, row_class = 0, column_class = 0, weight = 0, bytes = 0;

  WgmmaPacked(const WgmmaTile& tile, const Conv2dShape& shape);
};

/// True when pixel i of y reads pixel i of x alone: 1x1, stride 1, no padding.
bool wgmma_is_dense(const Conv2dShape& shape);

/// True when this family can run the convolution on a GPU of compute capability 9.0: one group, strides of 16 bytes,
/// codes out, a window that tensor maps can express.
bool wgmma_supports(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, int images);

/// True when of each four consecutive input channels of a weight [K, R, S, C] at most two are not 0, as sparse tiles
/// need it.
bool wgmma_keeps_two_of_four(const Conv2dShape& shape, const int8_t* weight);

/// True when this tile can run a convolution that wgmma_supports(), with weights that are as it needs them.
bool wgmma_fits(const WgmmaTile& tile, const Conv2dShape& shape, int images);

/// The choice of a tile by hand, as wgmma_choices names it.
CudaConv2d wgmma_choice(int tile);

/// Sparse tiles among them where the weights are so.
void wgmma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
/// Throws Error(promise) when the tile is sparse and the weights are not.
std::vector<uint8_t> wgmma_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                const Conv2dWeights& weights);

}  // namespace octet::kernels
