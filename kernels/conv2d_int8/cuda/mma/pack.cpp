// Weights for the mma kernels: tile after tile as they shall lie in shared memory, so that copying one is a plain copy.
#include "kernels/conv2d_int8/cuda/mma/mma.h"

namespace octet::kernels {

std::vector<uint8_t> mma_pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                              const Conv2dWeights& w) {
  const MmaTile& tile = kMmaTiles[conv.variant];
  const MmaGrid grid(tile, g, 1);
  const size_t tile_bytes = static_cast<size_t>(tile.block_n) * tile.block_k;
  const int channels = grid.n_tiles * tile.block_n, taps = g.kernel_h * g.kernel_w;
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, channels, tile_bytes * grid.n_tiles * grid.k_tiles);
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    const int row = mma_weight_row(tile, k % tile.block_n);
    uint8_t* tiles = weight + k / tile.block_n * (tile_bytes * grid.k_tiles) + row * tile.block_k;
    const int8_t* from = w.weight + static_cast<ptrdiff_t>(k) * taps * g.in_c;
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < g.in_c; ++c) {
        const int chunk = tap * grid.in_chunks + c / 16, column = chunk % tile.row_chunks();
        uint8_t* to = tiles + chunk / tile.row_chunks() * tile_bytes;
        to[mma_swizzle(tile.block_k, row, column) * 16 + c % 16] = static_cast<uint8_t>(from[tap * g.in_c + c]);
      }
    }
  }
  return packed;
}

}  // namespace octet::kernels
