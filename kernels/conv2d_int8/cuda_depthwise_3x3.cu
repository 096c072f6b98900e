// Depthwise 3x3 convolution of stride 1 or 2, close to the speed of memory. A thread computes a few channels of a tile
// of output pixels, a column of input at a time: the words of four rows, four channels each, are transposed into one
// word a channel, whose bytes are the rows. One dp4a then multiplies a whole column of the window, and with stride 1
// the four rows of a word serve two rows of output.
#include <algorithm>
#include <iterator>

#include "kernels/conv2d_int8/cuda_epilogue.cuh"
#include "kernels/conv2d_int8/cuda_family.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_vector.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kQuad = 4;
constexpr int kWindow = 3;

/// What one thread computes.
struct DepthwiseTile {
  int sets;     ///< of four input rows, two apart: each gives two rows of output with stride 1, one with stride 2
  int columns;  ///< of output
  int quads;    ///< of channels

  constexpr int rows(int stride) const { return stride == 1 ? 2 * sets : sets; }
};

constexpr DepthwiseTile kTiles[] = {{1, 4, 1}, {1, 7, 1}, {2, 4, 1}, {1, 4, 2}, {1, 7, 2}};

struct DepthwiseArgs {
  Conv2dShape g;
  CudaRounding rounding;
  CudaChannelConstants constants;
  const uint32_t* weight;  ///< [S, channels]: the bytes of a word are rows, the last is 0
  const uint8_t* x;
  uint8_t* y;
  unsigned threads, channels;        ///< channels: padded, of the constants and weights
  unsigned parts, tiles_h, tiles_w;  ///< parts of the channels, tiles of an image
  uint32_t padding;                  ///< four codes of real 0
};

/// The rows of a column of input, and the words of each set's channels.
template <int kSets>
struct Column {
  uint32_t row[2 * kSets + 2];

  __device__ void transpose(uint32_t (&codes)[kSets][kQuad]) const {
    uint32_t low[kSets + 1], high[kSets + 1];  // channels 0, 1 and 2, 3 of two rows each
#pragma unroll
    for (int i = 0; i <= kSets; ++i) {
      low[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x5140),
      high[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x7362);
    }
#pragma unroll
    for (int i = 0; i < kSets; ++i) {
      codes[i][0] = __byte_perm(low[i], low[i + 1], 0x5410), codes[i][1] = __byte_perm(low[i], low[i + 1], 0x7632);
      codes[i][2] = __byte_perm(high[i], high[i + 1], 0x5410), codes[i][3] = __byte_perm(high[i], high[i + 1], 0x7632);
    }
  }
};

/// Nine products stay far below 2^22, so a sum that starts from CudaRounding's constant is a float's bits already.
__device__ float exact_float(int32_t biased_acc) { return __int_as_float(biased_acc) - CudaRounding::kConstant; }

/// kCount words from `from`, a multiple of their size.
template <int kCount>
__device__ void load_words(const void* from, uint32_t (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = __ldg(static_cast<const uint32_t*>(from));
  } else {
    const uint2 both = __ldg(static_cast<const uint2*>(from));
    to[0] = both.x, to[1] = both.y;
  }
}

template <int kStride, int kTileIndex, bool kSigned>
__global__ void __launch_bounds__(kThreads) depthwise_3x3_kernel(DepthwiseArgs a) {
  constexpr DepthwiseTile kTile = kTiles[kTileIndex];
  constexpr int kSets = kTile.sets, kQuads = kTile.quads, kChannels = kQuads * kQuad, kColumns = kTile.columns;
  constexpr int kRows = kTile.rows(kStride), kRowsOfSet = kRows / kSets;
  constexpr int kInRows = (kRows - 1) * kStride + kWindow, kInColumns = (kColumns - 1) * kStride + kWindow;
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const Conv2dShape& g = a.g;
  const unsigned tile = thread / a.parts, image = tile / a.tiles_w / a.tiles_h;
  const int ox = tile % a.tiles_w * kColumns, oy = tile / a.tiles_w % a.tiles_h * kRows;
  const int left = ox * kStride - g.pad_w, top = oy * kStride - g.pad_h, k = thread % a.parts * kChannels;

  uint32_t weight[kWindow][kChannels];
  float multiplier[kChannels], bias[kChannels];
  int32_t init[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    for (int s = 0; s < kWindow; ++s) weight[s][i] = __ldg(a.weight + s * a.channels + k + i);
    multiplier[i] = __ldg(a.constants.multiplier + k + i), bias[i] = __ldg(a.constants.bias + k + i);
    init[i] = __ldg(a.constants.init + k + i) + CudaRounding::kConstantBits;
  }

  const int row_bytes = g.in_w * g.in_stride;
  const uint8_t* x =
      a.x + static_cast<ptrdiff_t>(image) * g.in_h * row_bytes + (top * row_bytes + left * g.in_stride) + k;
  uint8_t* y = a.y + ((static_cast<ptrdiff_t>(image) * g.out_h + oy) * g.out_w + ox) * g.out_stride + k;
  bool row_inside[kInRows];
#pragma unroll
  for (int r = 0; r < kInRows; ++r) row_inside[r] = top + r >= 0 && top + r < g.in_h;

  int32_t acc[kColumns][kRows][kChannels];
#pragma unroll
  for (int column = 0; column < kInColumns; ++column, x += g.in_stride) {
    Column<kSets> words[kQuads];
    const bool inside = left + column >= 0 && left + column < g.in_w;
#pragma unroll
    for (int r = 0; r < 2 * kSets + 2; ++r) {
      uint32_t codes[kQuads];
      for (uint32_t& word : codes) word = a.padding;
      if (r < kInRows && row_inside[r] && inside) load_words(x + r * row_bytes, codes);
      for (int q = 0; q < kQuads; ++q) words[q].row[r] = codes[q];
    }
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      uint32_t codes[kSets][kQuad];
      words[q].transpose(codes);
#pragma unroll
      for (int s = 0; s < kWindow; ++s) {
        if (column < s || (column - s) % kStride != 0 || (column - s) / kStride >= kColumns) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < kQuad; ++i) {
            const int channel = q * kQuad + i;
            int32_t& sum = acc[(column - s) / kStride][r][channel];
            // The second row of a set sees its codes a row further down; what takes their place meets weight 0.
            sum = dot4<kSigned>(codes[r / kRowsOfSet][i] >> (8 * (r % kRowsOfSet)), weight[s][channel],
                                s == 0 ? init[channel] : sum);
          }
        }
      }
    }
    if (column < kWindow - 1 || (column - kWindow + 1) % kStride != 0) continue;
    const int done = (column - kWindow + 1) / kStride;  // this output column is complete
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (oy + r >= g.out_h || ox + done >= g.out_w) continue;
      uint8_t* to = y + (r * g.out_w + done) * g.out_stride;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        int32_t code[kQuad];
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          const int channel = q * kQuad + i;
          code[i] = a.rounding(fmaf(exact_float(acc[done][r][channel]), multiplier[channel], bias[channel]));
        }
        reinterpret_cast<uint32_t*>(to)[q] = pack_codes(code[0], code[1], code[2], code[3]);
      }
    }
  }
}

/// Whole parts are read and written: channels past the last are lanes behind it, which may hold anything.
bool fits(const Conv2dShape& g, const DepthwiseTile& tile) {
  const int channels = tile.quads * kQuad;
  return g.in_stride % channels == 0 && g.out_stride % channels == 0;
}

/// Pixels that threads compute, those outside the image counted.
long computed(const Conv2dShape& g, const DepthwiseTile& tile) {
  return static_cast<long>(cuda_round_up(g.out_h, tile.rows(g.stride_h))) * cuda_round_up(g.out_w, tile.columns);
}

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  const Conv2dShape& g = problem.shape;
  const bool depthwise = g.groups == g.in_c && g.out_c == g.in_c;
  const bool window = g.kernel_h == kWindow && g.kernel_w == kWindow && g.dilation_h == 1 && g.dilation_w == 1 &&
                      g.stride_h == g.stride_w && g.stride_h <= 2;
  if (!depthwise || !window || problem.params.float_output || problem.params.has_residual) return;
  for (int variant = 0; variant < static_cast<int>(std::size(kTiles)); ++variant) {
    const DepthwiseTile& tile = kTiles[variant];
    if (!fits(g, tile)) continue;
    found.push_back({.variant = variant,
                     .name = "dp4a_depthwise_3x3_" + std::to_string(tile.rows(g.stride_h)) + "x" +
                             std::to_string(tile.columns) + "x" + std::to_string(tile.quads * kQuad)});
  }
  std::stable_sort(found.begin(), found.end(), [&](const CudaConv2d& a, const CudaConv2d& b) {
    return computed(g, kTiles[a.variant]) < computed(g, kTiles[b.variant]);
  });
}

int padded_channels(const Conv2dShape& g) { return cuda_round_up(g.out_c, 2 * kQuad); }

std::vector<uint8_t> pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p) {
  const int channels = padded_channels(g);
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, p, channels, static_cast<size_t>(kWindow) * channels * sizeof(uint32_t));
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    for (int r = 0; r < kWindow; ++r) {
      for (int s = 0; s < kWindow; ++s) {
        weight[(static_cast<size_t>(s) * channels + k) * sizeof(uint32_t) + r] =
            static_cast<uint8_t>(p.weight[(static_cast<ptrdiff_t>(k) * kWindow + r) * kWindow + s]);
      }
    }
  }
  return packed;
}

using Kernel = void (*)(DepthwiseArgs);

template <int kTileIndex>
Kernel kernel_of(int stride, bool is_signed) {
  if (stride == 1)
    return is_signed ? depthwise_3x3_kernel<1, kTileIndex, true> : depthwise_3x3_kernel<1, kTileIndex, false>;
  return is_signed ? depthwise_3x3_kernel<2, kTileIndex, true> : depthwise_3x3_kernel<2, kTileIndex, false>;
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  constexpr Kernel (*kKernels[])(int, bool) = {kernel_of<0>, kernel_of<1>, kernel_of<2>, kernel_of<3>, kernel_of<4>};
  static_assert(std::size(kKernels) == std::size(kTiles));
  const DepthwiseTile& tile = kTiles[conv.variant];
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int channels = padded_channels(g);
  const unsigned parts = blocks_for(g.out_c, tile.quads * kQuad), tiles_h = blocks_for(g.out_h, tile.rows(g.stride_h)),
                 tiles_w = blocks_for(g.out_w, tile.columns);
  const DepthwiseArgs args{
      g,
      CudaEpilogue(p).rounding,
      cuda_channel_constants(packed, channels),
      reinterpret_cast<const uint32_t*>(packed + cuda_constants_bytes(channels)),
      static_cast<const uint8_t*>(data.x),
      static_cast<uint8_t*>(data.y),
      thread_count(static_cast<long>(data.images) * tiles_h * tiles_w * parts, "depthwise convolution"),
      static_cast<unsigned>(channels),
      parts,
      tiles_h,
      tiles_w,
      (p.x_zero_point & 0xFF) * 0x01010101u};
  const Kernel kernel = kKernels[conv.variant](g.stride_h, p.x_signed);
  kernel<<<blocks_for(args.threads, kThreads), kThreads, 0, stream>>>(args);
  check_launch("depthwise convolution");
}

}  // namespace

const CudaConvFamily& cuda_depthwise_3x3_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
