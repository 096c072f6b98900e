// Which tiles run a first layer with its max-pool, and its weights as the kernels read them.
#include <algorithm>

#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv_max_pool_int8/cuda_tiles.h"

namespace octet::kernels {
namespace {

using namespace conv_max_pool;  // NOLINT: of this folder

constexpr int kTileRows[] = {8, 4, 7, 14, 2, 1};
constexpr size_t kMaxSharedBytes = 48 * 1024;
constexpr size_t kVectorBytes = 16;  // that a thread reads at once: the words of two mma

/// Whether each window of the pool has a pixel, of one axis.
bool windows_meet(int in, int out, int pad) { return (out - 1) * kStride - pad < in; }

}  // namespace

std::vector<CudaConvMaxPool> cuda_conv_max_pool_choices(const ConvMaxPool& layers) {
  const Conv2dShape& g = layers.conv;
  const Conv2dParams& p = layers.conv_params;
  const PoolShape& s = layers.pool;
  const bool conv = g.in_c <= 4 && g.in_stride == 4 && g.groups == 1 && g.stride_h == kStride &&
                    g.stride_w == kStride && g.dilation_h == 1 && g.dilation_w == 1 && rows_index(g) >= 0 &&
                    g.kernel_w <= kTaps && !p.has_residual && !p.y.float_output;
  const bool pool = s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == kStride && s.stride_w == kStride &&
                    s.pad_h <= 1 && s.pad_w <= 1 && s.out_stride % kThreadChannels == 0 &&
                    windows_meet(s.in_h, s.out_h, s.pad_h) && windows_meet(s.in_w, s.out_w, s.pad_w);
  std::vector<CudaConvMaxPool> choices;
  if (!conv || !pool) return choices;
  for (const int rows : kTileRows) {
    const TileGrid grid(layers, rows);
    if (grid.rows < rows || grid.shared_bytes() > kMaxSharedBytes) continue;
    choices.push_back({rows, "mma_image_max_pool_" + std::to_string(grid.window_rows) + "_r" + std::to_string(rows)});
  }
  return choices;
}

std::vector<uint8_t> cuda_conv_max_pool_pack(const ConvMaxPool& layers) {
  const Conv2dShape& g = layers.conv;
  const int channels = cuda_round_up(g.out_c, 2 * kWarpChannels), rows = kWindowRows[rows_index(g)];
  const int per_channel = g.kernel_h * g.kernel_w * g.in_c;
  std::vector<int8_t> weights(layers.weights.weight,
                              layers.weights.weight + static_cast<size_t>(g.out_c) * per_channel);
  std::vector<float> multiplier(layers.weights.multiplier, layers.weights.multiplier + g.out_c);
  for (int k = 0; k < g.out_c; ++k) {
    if (!(multiplier[k] < 0)) continue;
    multiplier[k] = -multiplier[k];
    for (int i = 0; i < per_channel; ++i) weights[static_cast<size_t>(k) * per_channel + i] *= -1;
  }
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, layers.conv_params, {weights.data(), multiplier.data(), layers.weights.bias}, channels,
                          static_cast<size_t>(channels) * rows * kTaps * sizeof(uint32_t));
  uint8_t* to = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    // Channel 8 t + 2 j + e of a warp is column 2 t + e of its mma j; lane 4 column + t' holds words t' and t' + 4.
    const int own = k % kWarpChannels, mma = own % kThreadChannels / 2, column = own / kThreadChannels * 2 + own % 2;
    for (int r = 0; r < g.kernel_h; ++r) {
      for (int s = 0; s < g.kernel_w; ++s) {
        const size_t vector =
            (static_cast<size_t>(k / kWarpChannels * rows + r) * 2 + mma / 2) * 32 + column * 4 + s % 4;
        const size_t from = (static_cast<size_t>(k) * g.kernel_h + r) * g.kernel_w + s;
        for (int c = 0; c < g.in_c; ++c) {
          to[vector * kVectorBytes + (mma % 2 * 2 + s / 4) * 4 + c] = static_cast<uint8_t>(weights[from * g.in_c + c]);
        }
      }
    }
  }
  return packed;
}

}  // namespace octet::kernels
