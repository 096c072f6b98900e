// The mma family's host side: which tiles can run a convolution, and how the work falls into tiles. Internal to this
// folder and its tests; CudaConv2d::variant is an index of kMmaTiles.
#pragma once

#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/mma/tiles.h"

namespace octet::kernels {

/// How a convolution falls into tiles.
struct MmaGrid {
  int pixels = 0;     ///< of the output, all images
  int in_chunks = 0;  ///< of 16 input channels
  int m_tiles = 0, n_tiles = 0, k_tiles = 0;

  MmaGrid(const MmaTile& tile, const Conv2dShape& shape, int images);
  int tiles() const { return m_tiles * n_tiles; }
};

/// A window that this family counts in: kernels of up to 15 x 15 (bit masks of 16 taps).
inline constexpr int kMmaMaxKernel = 15;

/// True when tiles of this family can run the convolution: one group, more than 4 channels at strides of 16 bytes.
bool mma_supports(const Conv2dShape& shape, const Conv2dParams& params, int images);

/// The choice of a tile by hand, as mma_choices names it.
CudaConv2d mma_choice(int tile, int split_k, bool in_cluster = false);

/// The largest split_k that this tile can run with here and no cluster: 1 when the workspace has too few counters.
int mma_max_split(const MmaGrid& grid);

void mma_choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
std::vector<uint8_t> mma_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                              const Conv2dWeights& weights);
size_t mma_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images);

}  // namespace octet::kernels
