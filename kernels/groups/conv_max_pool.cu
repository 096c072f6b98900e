// SPDX-License-Identifier: Apache-2.0
// A first layer and its 3x3 max-pool of stride 2 on tensor cores.
//
// A larger sum never gives a smaller code if the multiplier is positive, so the largest sum of a pool's window gives
// its largest code: sums are compared, and only the largest is rescaled, rounded and stored. Channels with a negative
// multiplier have their weights and multiplier negated in the packed data, which changes no value.
//
// A pixel of the image is a word. A row of the window, up to eight words, is one mma's operand of 32 codes. The rows of
// the mma are 8 left and 8 right columns of the convolution, so that a thread has two neighbours of a pool's window and
// gets the third from the thread that has the next two: 16 columns give 7 pixels of the pool. A warp moves down such a
// strip: two rows of the convolution, which share most of their words, and the row before them make a row of the pool.
// Blocks iterate over tiles and keep their weights in registers; the part of the image that a tile needs is copied to
// shared memory while the previous tile is computed.
#include "kernels/core/divide.h"
#include "kernels/groups/conv_max_pool.cuh"

#include "kernels/conv/cuda/rounding.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

using namespace conv_max_pool;  // NOLINT: this file's own header

constexpr int kTileRows[] = {8, 4, 7, 14, 2, 1};
constexpr size_t kMaxSharedBytes = 48 * 1024;
constexpr size_t kVectorBytes = 16;  // bytes that a thread reads at once: the words of two mma

/// Returns whether each window of the pool contains a pixel, along one axis.
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
  const int channels = round_up(g.out_c, 2 * kWarpChannels), rows = kWindowRows[rows_index(g)];
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

namespace {

struct PoolArgs {
  PackedRounding rounding;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [channels / 32][rows of the window][2][32 lanes]: the words of two mma that a lane holds
  const uint32_t* x;
  uint8_t* y;
  uint32_t padding;    ///< four codes of real 0
  int in_h, in_w;      ///< size of the image
  int conv_h, conv_w;  ///< size of the convolution's output
  int out_h, out_w, out_c, out_stride;
  int top, left;                ///< rows and columns of padding before the image, for window (0, 0) of the pool
  int pool_top, pool_left;      ///< rows and columns of padding before the convolution's output, for the same window
  int rows;                     ///< rows of the pool's output in a tile
  int tiles_h, tiles_w, tiles;  ///< tiles of an image (down, across) and of the batch
  int in_rows;                  ///< rows of a tile's part of the image
};

/// The first pixel of a tile in the pool's output.
template <int kGroups>
struct TileOrigin {
  int image, row, column;
  __device__ TileOrigin(const PoolArgs& a, int tile)
      : image(tile / a.tiles_w / a.tiles_h),
        row(tile / a.tiles_w % a.tiles_h * a.rows),
        column(tile % a.tiles_w * TileShape<kGroups>::kPixels) {}
};

/// Begins to copy a tile's part of the image to `shared`, with padding filled in.
template <int kGroups>
__device__ void fetch_tile(const PoolArgs& a, int tile, uint32_t* shared) {
  using Tile = TileShape<kGroups>;
  const TileOrigin<kGroups> at(a, tile);
  const int warp = threadIdx.x / 32;
  const int top = at.row * kWordsOfPixel - a.top, left = at.column * kWordsOfPixel - a.left;
  for (int column = threadIdx.x % 32; column < Tile::kFetched; column += 32) {
    const unsigned ix = left + column;
    const ptrdiff_t first = (static_cast<ptrdiff_t>(at.image) * a.in_h + top + warp) * a.in_w + left + column;
    const uint32_t* from = a.x + first;
    uint32_t to = shared_address(shared + warp * Tile::kPitch + column);
#pragma unroll 4
    for (int row = warp; row < a.in_rows; row += kWarps) {
      const unsigned iy = top + row;
      copy_word_or_fill(to, from, ix < static_cast<unsigned>(a.in_w) && iy < static_cast<unsigned>(a.in_h), a.padding);
      from += kWarps * a.in_w;
      to += kWarps * Tile::kPitch * sizeof(uint32_t);
    }
  }
  copy_async_commit();
}

/// Writes the thread's channels of one pixel.
__device__ __forceinline__ void store_pixel(const PoolArgs& a, const ThreadConstants& c,
                                            const int32_t (&sum)[kThreadChannels], uint8_t* to) {
  float t[kThreadChannels];
#pragma unroll
  for (int i = 0; i < kThreadChannels; ++i) t[i] = rescale(sum[i] + c.init[i], c.multiplier[i], c.bias[i]);
  uint32_t word[2] = {a.rounding(t[0], t[1], t[2], t[3]), a.rounding(t[4], t[5], t[6], t[7])};
  a.rounding.finish(word);
  *reinterpret_cast<uint2*>(to) = {word[0], word[1]};
}

template <int kRows, int kGroups, bool kSigned>
__global__ void __launch_bounds__(kThreads, 3) conv_max_pool_kernel(PoolArgs a) {
  extern __shared__ uint32_t tiles[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  const int group = blockIdx.y * kGroups + warp % kGroups, strip = warp / kGroups;
  const int k = group * kWarpChannels + lane % 4 * kThreadChannels;
  constexpr int kPitch = TileShape<kGroups>::kPitch, kConvRow = kStride * kPitch;
  const int tile_words = a.in_rows * kPitch;

  uint4 weight[kRows][2];
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) weight[i / 2][i % 2] = __ldg(a.weight + (group * 2 * kRows + i) * 32 + lane);
  const ThreadConstants constants(a.constants, k);
  wait_for_previous_kernel();
  int tile = blockIdx.x;
  fetch_tile<kGroups>(a, tile, tiles);

  for (int buffer = 0; tile < a.tiles; tile += gridDim.x, buffer ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this tile has arrived, and nobody reads the other buffer any more
    if (tile + gridDim.x < a.tiles) fetch_tile<kGroups>(a, tile + gridDim.x, tiles + (buffer ^ 1) * tile_words);
    const TileOrigin<kGroups> at(a, tile);
    const int column = at.column + strip * kStripPixels + own;
    const int left = column * kStride - a.pool_left, top = at.row * kStride - a.pool_top;
    const bool left_counts = left >= 0 && left < a.conv_w, right_counts = left + 1 >= 0 && left + 1 < a.conv_w;
    const bool border = __any_sync(0xFFFFFFFFu, !left_counts || !right_counts);
    const bool stores = own < kStripPixels && column < a.out_w && k < a.out_c;
    const int rows = min(a.rows, a.out_h - at.row);
    const uint32_t* from = tiles + buffer * tile_words + (strip * kStripPixels + own) * kWordsOfPixel + lane % 4;
    uint8_t* to = a.y + ((static_cast<ptrdiff_t>(at.image) * a.out_h + at.row) * a.out_w + column) * a.out_stride + k;

    RowSums before;  // sums of the row that is shared with the windows above
    before.fill(0);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t codes[4];
      load_row(from + r * kPitch, codes);
      before.multiply_add_row<kSigned>(codes, weight[r]);
    }
    before.leave_out(top < 0);

    for (int row = 0; row < rows; ++row, to += static_cast<ptrdiff_t>(a.out_w) * a.out_stride) {
      from += kConvRow;
      RowSums middle, last;
      middle.fill(0);
      last.fill(0);
#pragma unroll
      for (int r = 0; r < kRows + kStride; ++r) {
        uint32_t codes[4];
        load_row(from + r * kPitch, codes);
        if (r < kRows) middle.multiply_add_row<kSigned>(codes, weight[r]);
        if (r >= kStride) last.multiply_add_row<kSigned>(codes, weight[r - kStride]);
      }
      from += kConvRow;
      middle.leave_out(top + 2 * row + 1 >= a.conv_h);
      last.leave_out(top + 2 * row + 2 >= a.conv_h);
      middle.keep_larger(before);
      middle.keep_larger(last);
      before = last;

      if (border) middle.leave_out(!left_counts, !right_counts);
      int32_t largest[kThreadChannels];
#pragma unroll
      for (int i = 0; i < kThreadChannels; ++i) {
        const int32_t of_left = middle.value[i / 2][i % 2], of_right = middle.value[i / 2][2 + i % 2];
        largest[i] = max(max(of_left, of_right), __shfl_down_sync(0xFFFFFFFFu, of_left, 4));
      }
      if (stores) store_pixel(a, constants, largest, to);
    }
  }
}

/// Returns the convolution's output with the pool's clamp applied after its own.
CodeOutput clamped_twice(const CodeOutput& conv, const MaxPoolParams& pool) {
  CodeOutput both = conv;
  both.clamp_min = std::clamp(conv.clamp_min, pool.clamp_min, pool.clamp_max);
  both.clamp_max = std::clamp(conv.clamp_max, pool.clamp_min, pool.clamp_max);
  return both;
}

using Kernel = void (*)(PoolArgs);
template <int kRows>
Kernel kernel_for(int groups, bool is_signed) {
  if (groups == 1) return is_signed ? conv_max_pool_kernel<kRows, 1, true> : conv_max_pool_kernel<kRows, 1, false>;
  return is_signed ? conv_max_pool_kernel<kRows, 2, true> : conv_max_pool_kernel<kRows, 2, false>;
}

}  // namespace

void cuda_conv_max_pool(const CudaConvMaxPool& choice, const ConvMaxPool& layers, const CudaConvMaxPoolData& data,
                        CudaStream stream) {
  const Conv2dShape& g = layers.conv;
  const Conv2dParams& p = layers.conv_params;
  const PoolShape& s = layers.pool;
  const TileGrid grid(layers, choice.rows);
  const int channels = round_up(g.out_c, 2 * kWarpChannels);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  PoolArgs args{PackedRounding(clamped_twice(p.y, layers.pool_params)),
                cuda_channel_constants(packed, channels),
                reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
                static_cast<const uint32_t*>(data.x),
                static_cast<uint8_t*>(data.y),
                four_codes(p.x.zero_point)};
  args.in_h = g.in_h, args.in_w = g.in_w;
  args.conv_h = s.in_h, args.conv_w = s.in_w;
  args.out_h = s.out_h, args.out_w = s.out_w, args.out_c = g.out_c, args.out_stride = s.out_stride;
  args.top = s.pad_h * kStride + g.pad_h, args.left = s.pad_w * kStride + g.pad_w;
  args.pool_top = s.pad_h, args.pool_left = s.pad_w;
  args.rows = grid.rows, args.in_rows = grid.in_rows;
  args.tiles_h = blocks_for(s.out_h, grid.rows), args.tiles_w = blocks_for(s.out_w, grid.pixels);
  args.tiles = data.images * args.tiles_h * args.tiles_w;
  const bool is_signed = p.x.is_signed;
  const Kernel kernel = grid.window_rows == kWindowRows[0] ? kernel_for<kWindowRows[0]>(grid.groups, is_signed)
                                                           : kernel_for<kWindowRows[1]>(grid.groups, is_signed);
  const unsigned columns = blocks_for(g.out_c, grid.groups * kWarpChannels);
  const unsigned rows = std::max(1u, resident_blocks(kernel, kThreads, grid.shared_bytes()) / columns);
  launch_overlapped(kernel, dim3(std::min<unsigned>(args.tiles, rows), columns), kThreads, grid.shared_bytes(), stream,
                    args);
  check_launch("first layer with its max-pool");
}

}  // namespace octet::kernels
