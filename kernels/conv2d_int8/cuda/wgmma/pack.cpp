// Weights for the wgmma kernels: tile after tile as they shall lie in shared memory, so that copying one is a plain
// copy; and the starts of sums for each kind of border.
#include <algorithm>

#include "kernels/conv2d_int8/cuda/mma/tiles.h"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"

namespace octet::kernels {

WgmmaPacked::WgmmaPacked(const WgmmaTile& tile, const Conv2dShape& g)
    : rows(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h),
      columns(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w) {
  channels = cuda_round_up(g.out_c, tile.block_n);
  const auto aligned = [](size_t n) { return (n + 255) / 256 * 256; };
  starts = cuda_constants_bytes(channels);
  row_class = aligned(starts + rows.taps.size() * columns.taps.size() * channels * sizeof(int32_t));
  column_class = row_class + rows.of_output.size();
  weight = aligned(column_class + columns.of_output.size());
  const size_t k_bytes = static_cast<size_t>(cuda_round_up(g.in_c, tile.block_k)) * g.kernel_h * g.kernel_w;
  bytes = weight + channels * k_bytes;
}

namespace {

/// The sums of a channel's weights at each tap.
std::vector<int32_t> tap_sums(const Conv2dShape& g, const int8_t* weight) {
  std::vector<int32_t> sums(g.kernel_h * g.kernel_w);
  for (int32_t& sum : sums) {
    for (int c = 0; c < g.in_c; ++c) sum += *weight++;
  }
  return sums;
}

int32_t sum_inside(const Conv2dShape& g, const std::vector<int32_t>& sums, uint32_t rows, uint32_t columns) {
  int32_t sum = 0;
  for (int r = 0; r < g.kernel_h; ++r) {
    for (int s = 0; s < g.kernel_w; ++s) {
      if ((rows >> r & 1) && (columns >> s & 1)) sum += sums[r * g.kernel_w + s];
    }
  }
  return sum;
}

}  // namespace

std::vector<uint8_t> wgmma_pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                                const Conv2dWeights& w) {
  const WgmmaTile& tile = kWgmmaTiles[conv.variant];
  const WgmmaPacked at(tile, g);
  const int block_n = tile.block_n, block_k = tile.block_k;
  const int taps = g.kernel_h * g.kernel_w, steps = (g.in_c + block_k - 1) / block_k * taps;
  const size_t tile_bytes = static_cast<size_t>(block_n) * block_k;
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, at.channels, at.bytes - cuda_constants_bytes(at.channels));
  float* constants = reinterpret_cast<float*>(packed.data());
  for (int k = 0; k < g.out_c; ++k) {
    constants[k] = w.multiplier[k] * kStepScale;
    constants[at.channels + k] = scaled_bias(w.bias[k]);
  }
  std::copy(at.rows.of_output.begin(), at.rows.of_output.end(), packed.begin() + at.row_class);
  std::copy(at.columns.of_output.begin(), at.columns.of_output.end(), packed.begin() + at.column_class);
  int32_t* starts = reinterpret_cast<int32_t*>(packed.data() + at.starts);
  for (int k = 0; k < g.out_c; ++k) {
    const int8_t* from = w.weight + static_cast<ptrdiff_t>(k) * taps * g.in_c;
    const std::vector<int32_t> sums = tap_sums(g, from);
    int32_t* start = starts + k;
    for (const uint32_t rows : at.rows.taps) {
      for (const uint32_t columns : at.columns.taps) {
        *start = -p.x.zero_point * sum_inside(g, sums, rows, columns);
        start += at.channels;
      }
    }
    const int row = wgmma_weight_row(k % block_n);
    uint8_t* tiles = packed.data() + at.weight + k / block_n * (tile_bytes * steps) + row * block_k;
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < g.in_c; ++c) {
        const int step = c / block_k * taps + tap, in_step = c % block_k;
        uint8_t* to = tiles + step * tile_bytes + mma_swizzle(block_k, row, in_step / 16) * 16;
        to[in_step % 16] = static_cast<uint8_t>(from[static_cast<ptrdiff_t>(tap) * g.in_c + c]);
      }
    }
  }
  return packed;
}

}  // namespace octet::kernels
