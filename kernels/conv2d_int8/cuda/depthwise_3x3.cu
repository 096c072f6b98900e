// Depthwise 3x3 convolution of stride 1 or 2. A thread computes four channels of a tile of output pixels, a column of
// input at a time: the words of four rows, four channels each, are transposed into one word a channel, whose bytes are
// the rows. One dp4a then multiplies a whole column of the window, and with stride 1 the four rows of a word serve two
// rows of output.
#include <algorithm>
#include <iterator>

#include "kernels/conv2d_int8/cuda/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_vector.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kQuad = 4;
constexpr int kWindow = 3;

/// Output pixels of one thread.
struct DepthwiseTile {
  int sets;     ///< of four input rows, two apart: each gives two rows of output with stride 1, one with stride 2
  int columns;  ///< widths of networks for 224x224 pictures are multiples of 7, those for 32x32 of 4

  constexpr int rows(int stride) const { return stride == 1 ? 2 * sets : sets; }
};

constexpr DepthwiseTile kTiles[] = {{2, 7}, {2, 4}, {1, 7}, {1, 4}};

struct DepthwiseArgs {
  Conv2dShape g;
  CudaRounding rounding;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [S, quads][kQuad channels]: the bytes of a word are rows, the last is 0
  const uint8_t* x;
  uint8_t* y;
  unsigned threads, quads, tiles_h, tiles_w;  ///< quads of a pixel's channels, tiles of an image
  uint32_t padding;                           ///< four codes of real 0
};

/// From four channels a word and a row each to four rows a word: codes[set][channel].
template <int kSets>
__device__ void transpose(const uint32_t (&row)[2 * kSets + 2], uint32_t (&codes)[kSets][kQuad]) {
  uint32_t low[kSets + 1], high[kSets + 1];  // channels 0, 1 and 2, 3 of two rows each
#pragma unroll
  for (int i = 0; i <= kSets; ++i) {
    low[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x5140);
    high[i] = __byte_perm(row[2 * i], row[2 * i + 1], 0x7362);
  }
#pragma unroll
  for (int i = 0; i < kSets; ++i) {
    codes[i][0] = __byte_perm(low[i], low[i + 1], 0x5410), codes[i][1] = __byte_perm(low[i], low[i + 1], 0x7632);
    codes[i][2] = __byte_perm(high[i], high[i + 1], 0x5410), codes[i][3] = __byte_perm(high[i], high[i + 1], 0x7632);
  }
}

/// Nine products stay far below 2^22, so a sum that starts from CudaRounding's constant is a float's bits already.
__device__ float exact_float(int32_t biased_acc) {
  return __int_as_float(biased_acc) - CudaRounding::kRoundingConstant;
}

/// What a thread's four channels need.
struct QuadConstants {
  uint32_t weight[kWindow][kQuad];
  float multiplier[kQuad], bias[kQuad];
  int32_t init[kQuad];  ///< as exact_float() wants it

  __device__ QuadConstants(const DepthwiseArgs& a, int quad) {
    const float4 m = __ldg(reinterpret_cast<const float4*>(a.constants.multiplier) + quad);
    const float4 b = __ldg(reinterpret_cast<const float4*>(a.constants.bias) + quad);
    const int4 from = __ldg(reinterpret_cast<const int4*>(a.constants.init) + quad);
    multiplier[0] = m.x, multiplier[1] = m.y, multiplier[2] = m.z, multiplier[3] = m.w;
    bias[0] = b.x, bias[1] = b.y, bias[2] = b.z, bias[3] = b.w;
    init[0] = from.x, init[1] = from.y, init[2] = from.z, init[3] = from.w;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) init[i] += CudaRounding::kRoundingConstantBits;
#pragma unroll
    for (int s = 0; s < kWindow; ++s) {
      const uint4 w = __ldg(a.weight + s * a.quads + quad);
      weight[s][0] = w.x, weight[s][1] = w.y, weight[s][2] = w.z, weight[s][3] = w.w;
    }
  }

  __device__ uint32_t finish(const int32_t (&sum)[kQuad], const CudaRounding& rounding) const {
    int32_t code[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) code[i] = rounding(fmaf(exact_float(sum[i]), multiplier[i], bias[i]));
    return pack_codes(code[0], code[1], code[2], code[3]);
  }
};

template <int kStride, int kTileIndex, bool kSigned>
__global__ void __launch_bounds__(kThreads) depthwise_3x3_kernel(DepthwiseArgs a) {
  constexpr int kSets = kTiles[kTileIndex].sets, kColumns = kTiles[kTileIndex].columns;
  constexpr int kRows = kTiles[kTileIndex].rows(kStride), kRowsOfSet = kRows / kSets;
  constexpr int kInRows = (kRows - 1) * kStride + kWindow, kInColumns = (kColumns - 1) * kStride + kWindow;
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const Conv2dShape& g = a.g;
  const unsigned quad = thread % a.quads, tile = thread / a.quads, image = tile / a.tiles_w / a.tiles_h;
  const int ox = tile % a.tiles_w * kColumns, oy = tile / a.tiles_w % a.tiles_h * kRows;
  const int left = ox * kStride - g.pad_w, top = oy * kStride - g.pad_h;
  const QuadConstants constants(a, quad);

  const uint8_t* row[kInRows];  // the next column's codes
  bool row_inside[kInRows];
#pragma unroll
  for (int r = 0; r < kInRows; ++r) {
    row[r] = a.x + ((static_cast<ptrdiff_t>(image) * g.in_h + top + r) * g.in_w + left) * g.in_stride + quad * kQuad;
    row_inside[r] = top + r >= 0 && top + r < g.in_h;
  }
  uint8_t* y = a.y + ((static_cast<ptrdiff_t>(image) * g.out_h + oy) * g.out_w + ox) * g.out_stride + quad * kQuad;
  const int out_row_bytes = g.out_w * g.out_stride;

  int32_t acc[kColumns][kRows][kQuad];
#pragma unroll
  for (int column = 0; column < kInColumns; ++column) {
    const bool inside = left + column >= 0 && left + column < g.in_w;
    uint32_t words[2 * kSets + 2], codes[kSets][kQuad];
#pragma unroll
    for (int r = 0; r < 2 * kSets + 2; ++r) {
      words[r] = a.padding;
      if (r >= kInRows) continue;  // meets weight 0
      if (row_inside[r] && inside) words[r] = __ldg(reinterpret_cast<const uint32_t*>(row[r]));
      row[r] += g.in_stride;
    }
    transpose<kSets>(words, codes);
#pragma unroll
    for (int s = 0; s < kWindow; ++s) {
      if (column < s || (column - s) % kStride != 0 || (column - s) / kStride >= kColumns) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        auto& sum = acc[(column - s) / kStride][r];
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          // The second row of a set sees its codes a row further down.
          sum[i] = dot4<kSigned>(codes[r / kRowsOfSet][i], constants.weight[s][i] << (8 * (r % kRowsOfSet)),
                                 s == 0 ? constants.init[i] : sum[i]);
        }
      }
    }
    if (column < kWindow - 1 || (column - kWindow + 1) % kStride != 0) continue;
    const int done = (column - kWindow + 1) / kStride;  // this output column is complete
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // Channels past the last are lanes behind it, which may hold anything.
      const uint32_t out = constants.finish(acc[done][r], a.rounding);
      if (oy + r < g.out_h && ox + done < g.out_w) *reinterpret_cast<uint32_t*>(y + r * out_row_bytes) = out;
    }
    y += g.out_stride;
  }
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
  const bool words = g.in_stride % kQuad == 0 && g.out_stride % kQuad == 0;
  if (!depthwise || !window || !words || problem.params.y.float_output || problem.params.has_residual) return;
  for (int variant = 0; variant < static_cast<int>(std::size(kTiles)); ++variant) {
    const DepthwiseTile& tile = kTiles[variant];
    found.push_back(
        {.variant = variant,
         .name = "dp4a_depthwise_3x3_" + std::to_string(tile.rows(g.stride_h)) + "x" + std::to_string(tile.columns)});
  }
  std::stable_sort(found.begin(), found.end(), [&](const CudaConv2d& a, const CudaConv2d& b) {
    return computed(g, kTiles[a.variant]) < computed(g, kTiles[b.variant]);
  });
}

std::vector<uint8_t> pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const int channels = cuda_round_up(g.out_c, kQuad);
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, p, w, channels, static_cast<size_t>(kWindow) * channels * sizeof(uint32_t));
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    for (int r = 0; r < kWindow; ++r) {
      for (int s = 0; s < kWindow; ++s) {
        weight[(static_cast<size_t>(s) * channels + k) * sizeof(uint32_t) + r] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * kWindow + r) * kWindow + s]);
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
  constexpr Kernel (*kKernels[])(int, bool) = {kernel_of<0>, kernel_of<1>, kernel_of<2>, kernel_of<3>};
  static_assert(std::size(kKernels) == std::size(kTiles));
  const DepthwiseTile& tile = kTiles[conv.variant];
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int channels = cuda_round_up(g.out_c, kQuad);
  const unsigned quads = channels / kQuad, tiles_h = blocks_for(g.out_h, tile.rows(g.stride_h)),
                 tiles_w = blocks_for(g.out_w, tile.columns);
  const DepthwiseArgs args{
      g,
      CudaEpilogue(p).rounding,
      cuda_channel_constants(packed, channels),
      reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
      static_cast<const uint8_t*>(data.x),
      static_cast<uint8_t*>(data.y),
      thread_count(static_cast<long>(data.images) * tiles_h * tiles_w * quads, "depthwise convolution"),
      quads,
      tiles_h,
      tiles_w,
      (p.x.zero_point & 0xFF) * 0x01010101u};
  const Kernel kernel = kKernels[conv.variant](g.stride_h, p.x.is_signed);
  kernel<<<blocks_for(args.threads, kThreads), kThreads, 0, stream>>>(args);
  check_launch("depthwise convolution");
}

}  // namespace

const CudaConvFamily& cuda_depthwise_3x3_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
