// SPDX-License-Identifier: Apache-2.0
// First layers, with up to four channels in four bytes, on tensor cores. A tap of the window is one word, so eight taps
// make the 32 codes of an mma and no byte of the image is copied more than once. The kernel is in image_conv.cuh.
#include <algorithm>

#include "kernels/conv/cuda/image_conv.cuh"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

/// A kernel for windows of up to 4 * fours taps, whose warps compute `rows` rows of a tile at once.
struct ImageKernel {
  int fours, rows;
};
constexpr ImageKernel kKernels[] = {{3, 2}, {3, 1}, {7, 1}, {13, 1}};  // 3x3, 5x5 and 7x7 windows
constexpr int kMaxTileBytes = 24 * 1024;

/// CudaConv2d::variant is an index of kKernels, plus this number if codes are rounded in steps.
constexpr int kInSteps = 100;

const ImageKernel& kernel_of(const CudaConv2d& conv) { return kKernels[conv.variant % kInSteps]; }

/// Returns how many rows (or columns) of input a tile of output needs.
int tile_side(int stride, int kernel, int dilation) { return (kImageTile - 1) * stride + (kernel - 1) * dilation + 1; }

/// Returns the words of the columns of a tile that are a stride apart (ImageArgs::phase).
int phase_words(const Conv2dShape& g) {
  return blocks_for(tile_side(g.stride_w, g.kernel_w, g.dilation_w), g.stride_w);
}

/// Returns the words of a row in shared memory: enough that the rows of a window lie in different banks, if there is
/// room.
int pitch_words(const Conv2dShape& g) {
  const int words = phase_words(g) * g.stride_w, spread = words + (32 + 9 - words % 32) % 32;
  const int rows = tile_side(g.stride_h, g.kernel_h, g.dilation_h);
  return rows * spread * 4 <= kMaxTileBytes ? spread : words;
}

size_t tile_bytes(const Conv2dShape& g) {
  return sizeof(uint32_t) * tile_side(g.stride_h, g.kernel_h, g.dilation_h) * pitch_words(g);
}

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  const Conv2dShape& g = problem.shape;
  const Conv2dParams& p = problem.params;
  if (g.in_c > 4 || g.in_stride != 4 || g.groups != 1 || g.out_stride % kImagePixelCodes != 0 || p.y.float_output ||
      p.has_residual || tile_bytes(g) > kMaxTileBytes ||
      tile_side(g.stride_w, g.kernel_w, g.dilation_w) > kImageThreads) {
    return;
  }
  const Conv2dWeights& w = problem.weights;
  const bool in_steps = StepRounding::can(p.y) && can_scale_steps(w.multiplier, w.bias, g.out_c);
  const int taps = g.kernel_h * g.kernel_w;
  int fours = 0;  // size of the smallest kernels that hold the window
  for (int i = 0; i < static_cast<int>(std::size(kKernels)); ++i) {
    const ImageKernel& kernel = kKernels[i];
    if (taps > kernel.fours * 4 || (fours != 0 && kernel.fours != fours)) continue;
    fours = kernel.fours;
    found.push_back({.variant = i + (in_steps ? kInSteps : 0),
                     .name = "mma_image_" + std::to_string(fours * 4) + "_r" + std::to_string(kernel.rows)});
  }
}

/// Returns the bytes of the start values of sums, which are stored twice, once for each of two pixels.
size_t start_bytes(int channels) { return static_cast<size_t>(channels) * 2 * sizeof(int32_t); }

std::vector<uint8_t> pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const int channels = round_up(g.out_c, 2 * kImageChannels), fours = kernel_of(conv).fours;
  const int taps = g.kernel_h * g.kernel_w;
  const size_t weight_bytes = static_cast<size_t>(channels) * fours * 4 * sizeof(uint32_t);
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, channels, start_bytes(channels) + weight_bytes);
  if (conv.variant >= kInSteps) scale_constants(packed.data(), channels, g.out_c);
  const int32_t* init = reinterpret_cast<const int32_t*>(packed.data()) + 2 * channels;
  int32_t* start = reinterpret_cast<int32_t*>(packed.data() + cuda_constants_bytes(channels));
  for (int k = 0; k < channels; ++k) {
    start[k / 2 * 4 + k % 2] = start[k / 2 * 4 + k % 2 + 2] =
        init[k] + (image_sums_are_floats(fours) ? FastRounding::kRoundingConstantBits : 0);
  }
  uint8_t* weight = reinterpret_cast<uint8_t*>(start) + start_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    // Channel 8 t + 2 j + e of a warp is column 2 t + e of its mma j; lane 4 column + t' holds word t' of each four.
    const int own = k % kImageChannels, mma = own % 8 / 2, column = own / 8 * 2 + own % 2;
    for (int tap = 0; tap < taps; ++tap) {
      const size_t four = static_cast<size_t>(k / kImageChannels) * fours + tap / 4;
      uint8_t* word = weight + ((four * 32 + column * 4 + tap % 4) * 4 + mma) * sizeof(uint32_t);
      for (int c = 0; c < g.in_c; ++c) {
        word[c] = static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * taps + tap) * g.in_c + c]);
      }
    }
  }
  return packed;
}

using Launched = void (*)(ImageArgs);

template <int kFours, int kRows, bool kSigned>
Launched with_rounding(ImageRounding rounding) {
  return rounding == ImageRounding::plain   ? image_conv_kernel<kFours, kRows, kSigned, ImageRounding::plain>
         : rounding == ImageRounding::steps ? image_conv_kernel<kFours, kRows, kSigned, ImageRounding::steps>
                                            : image_conv_kernel<kFours, kRows, kSigned, ImageRounding::limited_steps>;
}

template <int kIndex>
Launched with_signs(bool is_signed, ImageRounding rounding) {
  constexpr ImageKernel kKernel = kKernels[kIndex];
  return is_signed ? with_rounding<kKernel.fours, kKernel.rows, true>(rounding)
                   : with_rounding<kKernel.fours, kKernel.rows, false>(rounding);
}

Launched find_kernel(int index, bool is_signed, ImageRounding rounding) {
  constexpr Launched (*kFind[])(bool, ImageRounding) = {with_signs<0>, with_signs<1>, with_signs<2>, with_signs<3>};
  static_assert(std::size(kFind) == std::size(kKernels));
  return kFind[index](is_signed, rounding);
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const int channels = round_up(g.out_c, 2 * kImageChannels);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int tiles_h = blocks_for(g.out_h, kImageTile), tiles_w = blocks_for(g.out_w, kImageTile);
  const int tiles = data.images * tiles_h * tiles_w, in_columns = tile_side(g.stride_w, g.kernel_w, g.dilation_w);
  // If there are too few tiles for all multiprocessors, a block computes fewer channels of one.
  const bool two_groups = g.out_c > kImageChannels && static_cast<unsigned>(tiles) >= multiprocessors();
  const int copied_rows = kImageThreads / in_columns;
  const uint8_t* start = packed + cuda_constants_bytes(channels);
  const StepRounding steps(p.y);
  const ImageArgs args{.rounding = PackedRounding(p.y),
                       .steps = steps,
                       .lookup = CodeLookup(data),
                       .constants = cuda_channel_constants(packed, channels),
                       .start = reinterpret_cast<const int4*>(start),
                       .weight = reinterpret_cast<const uint4*>(start + start_bytes(channels)),
                       .x = static_cast<const uint32_t*>(data.x),
                       .y = static_cast<uint8_t*>(data.y),
                       .padding = four_codes(p.x.zero_point),
                       .in_h = g.in_h,
                       .in_w = g.in_w,
                       .out_h = g.out_h,
                       .out_w = g.out_w,
                       .out_c = g.out_c,
                       .out_stride = g.out_stride,
                       .stride_h = g.stride_h,
                       .stride_w = g.stride_w,
                       .pad_h = g.pad_h,
                       .pad_w = g.pad_w,
                       .dilation_h = g.dilation_h,
                       .dilation_w = g.dilation_w,
                       .taps = g.kernel_h * g.kernel_w,
                       .by_kernel_w = FastDivide(g.kernel_w),
                       .by_stride_w = FastDivide(g.stride_w),
                       .by_in_columns = FastDivide(in_columns),
                       .by_tiles_w = FastDivide(tiles_w),
                       .by_tiles_h = FastDivide(tiles_h),
                       .tiles = tiles,
                       .in_rows = tile_side(g.stride_h, g.kernel_h, g.dilation_h),
                       .in_columns = in_columns,
                       .copied_rows = copied_rows,
                       .copied_bytes = copied_rows * g.in_w * 4,
                       .copied_words = copied_rows * pitch_words(g),
                       .phase = phase_words(g),
                       .pitch = pitch_words(g),
                       .two_groups = two_groups};
  const ImageRounding rounding = conv.variant < kInSteps ? ImageRounding::plain
                                 : steps.max_steps < 255 ? ImageRounding::limited_steps
                                                         : ImageRounding::steps;
  const Launched kernel = find_kernel(conv.variant % kInSteps, p.x.is_signed, rounding);
  const size_t shared = 2 * tile_bytes(g);
  const unsigned columns = blocks_for(g.out_c, kImageChannels << args.two_groups);
  const unsigned rows = std::max(1u, resident_blocks(kernel, kImageThreads, shared) / columns);
  launch_overlapped(kernel, dim3(std::min<unsigned>(tiles, rows), columns), kImageThreads, shared, stream, args);
  check_launch("first-layer convolution");
}

}  // namespace

const CudaConvFamily& cuda_image_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
