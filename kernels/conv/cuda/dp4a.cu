// SPDX-License-Identifier: Apache-2.0
// Convolutions by dp4a, four products per instruction: grouped and depthwise ones with any window, and those that
// tensor cores do not support. A thread computes four neighbouring channels of a few neighbouring pixels, and
// multiplies each word of input that it loads by four words of weights. A weight is zero where an output channel's
// group does not contain the input channel, so depthwise convolutions, channel multipliers and odd groups need no code
// of their own.
#include <algorithm>
#include <iterator>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/core/codes.cuh"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kQuad = 4;  // channels of a word, for input and output

/// Which input channels the output channels [kQuad * quad, kQuad * quad + kQuad) read: `count` words from channel
/// first(quad) on.
struct InputQuads {
  int in_c, group_c, group_k, in_stride, out_c, count = 0;

  explicit InputQuads(const Conv2dShape& g)
      : in_c(g.in_c), group_c(g.in_c / g.groups), group_k(g.out_c / g.groups), in_stride(g.in_stride), out_c(g.out_c) {
    for (int k = 0; k < out_c; k += kQuad) {
      const int end = (std::min(k + kQuad, out_c) - 1) / group_k * group_c + group_c;
      count = std::max(count, (end - k / group_k * group_c / kQuad * kQuad + kQuad - 1) / kQuad);
    }
  }

  /// Words may extend past the channels read, where weights are 0, but not past a pixel.
  OCTET_HOST_DEVICE int first(int quad) const {
    const int wanted = quad * kQuad / group_k * group_c / kQuad * kQuad, last = in_stride - count * kQuad;
    return wanted < last ? wanted : last;
  }
};

struct Dp4aArgs {
  Conv2dShape g;
  CudaEpilogue epilogue;
  CodeLookup lookup;
  CudaChannelConstants constants;
  InputQuads input;
  const uint4* weight;  ///< [R, S, input.count, quads][kQuad out][kQuad in]
  const uint8_t* x;
  const void* residual;
  uint8_t* y;
  unsigned threads, quads, tiles;  ///< quads: groups of kQuad channels; tiles: groups of neighbouring pixels of a row
  uint32_t padding;                ///< four codes of real 0
};

/// Finishes four channels, from k on, of one pixel. Codes past the last channel are padding lanes, which may hold
/// anything.
__device__ void finish_quad(const Dp4aArgs& a, const int32_t (&acc)[kQuad], const float4& multiplier,
                            const float4& bias, ptrdiff_t pixel, int k) {
  float t[kQuad] = {rescale(acc[0], multiplier.x, bias.x), rescale(acc[1], multiplier.y, bias.y),
                    rescale(acc[2], multiplier.z, bias.z), rescale(acc[3], multiplier.w, bias.w)};
  const int count = min(kQuad, a.g.out_c - k);
  if (a.epilogue.has_residual) {
    for (int i = 0; i < count; ++i) {
      t[i] = a.epilogue.with_residual(t[i], a.residual, pixel * a.g.residual_stride + k + i);
    }
  }
  const ptrdiff_t index = pixel * a.g.out_stride + k;
  if (a.epilogue.float_output) {
    for (int i = 0; i < count; ++i) reinterpret_cast<float*>(a.y)[index + i] = t[i];
  } else {
    const CudaRounding& code = a.epilogue.rounding;
    const uint32_t codes = pack_codes(code(t[0]), code(t[1]), code(t[2]), code(t[3]));
    *reinterpret_cast<uint32_t*>(a.y + index) = a.lookup.wanted() ? a.lookup.word(codes) : codes;
  }
}

/// Adds to acc the four output channels' products with a word of codes.
template <bool kSigned>
__device__ void multiply_quad(uint32_t codes, const uint4& weight, int32_t (&acc)[kQuad]) {
  acc[0] = dot4<kSigned>(codes, weight.x, acc[0]);
  acc[1] = dot4<kSigned>(codes, weight.y, acc[1]);
  acc[2] = dot4<kSigned>(codes, weight.z, acc[2]);
  acc[3] = dot4<kSigned>(codes, weight.w, acc[3]);
}

/// A window of any size: a loop over taps, which loads one word per pixel.
struct AnyWindow {
  static constexpr int kPixels = 4;

  /// Adds the products of one row of the window. row: the first pixel of the input row; left: the column of the first
  /// output pixel's first tap.
  template <bool kSigned>
  __device__ static void add_row(const Dp4aArgs& a, const uint8_t* row, bool row_inside, int left, const uint4* weight,
                                 int32_t (&acc)[kPixels][kQuad]) {
    for (int s = 0; s < a.g.kernel_w; ++s) {
      int ix[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) ix[p] = left + p * a.g.stride_w + s * a.g.dilation_w;
      for (int c = 0; c < a.input.count; ++c, weight += a.quads) {
        const uint4 w = __ldg(weight);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          const uint32_t* from = reinterpret_cast<const uint32_t*>(row + ix[p] * a.g.in_stride) + c;
          const bool inside = row_inside && ix[p] >= 0 && ix[p] < a.g.in_w;
          multiply_quad<kSigned>(inside ? __ldg(from) : a.padding, w, acc[p]);
        }
      }
    }
  }
};

/// A window of known width and stride, so that neighbouring pixels share the words of a row.
template <int kWidth, int kStride>
struct FixedWindow {
  static constexpr int kPixels = 8, kColumns = (kPixels - 1) * kStride + kWidth;

  template <bool kSigned>
  __device__ static void add_row(const Dp4aArgs& a, const uint8_t* row, bool row_inside, int left, const uint4* weight,
                                 int32_t (&acc)[kPixels][kQuad]) {
    row += left * a.g.in_stride;
    for (int c = 0; c < a.input.count; ++c, weight += a.quads, row += kQuad) {
      uint32_t codes[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const bool inside = row_inside && left + i >= 0 && left + i < a.g.in_w;
        codes[i] = inside ? __ldg(reinterpret_cast<const uint32_t*>(row + i * a.g.in_stride)) : a.padding;
      }
#pragma unroll
      for (int s = 0; s < kWidth; ++s) {
        const uint4 w = __ldg(weight + s * a.input.count * a.quads);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) multiply_quad<kSigned>(codes[p * kStride + s], w, acc[p]);
      }
    }
  }
};

template <typename Window, bool kSigned>
__global__ void __launch_bounds__(kThreads) dp4a_kernel(Dp4aArgs a) {
  constexpr int kPixels = Window::kPixels;
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const Conv2dShape& g = a.g;
  const int quad = thread % a.quads, ox = thread / a.quads % a.tiles * kPixels, k = quad * kQuad;
  const unsigned out_row = thread / a.quads / a.tiles, image = out_row / g.out_h;
  const int top = static_cast<int>(out_row % g.out_h) * g.stride_h - g.pad_h, left = ox * g.stride_w - g.pad_w;
  const int4 init = __ldg(reinterpret_cast<const int4*>(a.constants.init) + quad);
  int32_t acc[kPixels][kQuad];
#pragma unroll
  for (int p = 0; p < kPixels; ++p) acc[p][0] = init.x, acc[p][1] = init.y, acc[p][2] = init.z, acc[p][3] = init.w;
  const uint8_t* x = wait_for_previous_kernel(a.x) + static_cast<ptrdiff_t>(image) * g.in_h * g.in_w * g.in_stride +
                     a.input.first(quad);
  for (int r = 0; r < g.kernel_h; ++r) {
    const int iy = top + r * g.dilation_h;
    Window::template add_row<kSigned>(a, x + iy * g.in_w * g.in_stride, iy >= 0 && iy < g.in_h, left,
                                      a.weight + r * g.kernel_w * a.input.count * a.quads + quad, acc);
  }
  const float4 multiplier = __ldg(reinterpret_cast<const float4*>(a.constants.multiplier) + quad);
  const float4 bias = __ldg(reinterpret_cast<const float4*>(a.constants.bias) + quad);
#pragma unroll
  for (int p = 0; p < kPixels; ++p) {
    const ptrdiff_t pixel = static_cast<ptrdiff_t>(out_row) * g.out_w + ox + p;
    if (ox + p < g.out_w) finish_quad(a, acc[p], multiplier, bias, pixel, k);
  }
}

struct Kernel {
  int width, stride;  ///< width and stride of the window; 0: any
  int pixels;         ///< output pixels of a thread
  const char* name;
  void (*run[2])(Dp4aArgs);  ///< [signed]
};

template <typename Window>
constexpr Kernel make_kernel(int width, int stride, const char* name) {
  return {width, stride, Window::kPixels, name, {dp4a_kernel<Window, false>, dp4a_kernel<Window, true>}};
}

/// The kernels by variant, the fastest first.
constexpr Kernel kKernels[] = {
    make_kernel<FixedWindow<3, 1>>(3, 1, "dp4a_8x4_w3"), make_kernel<FixedWindow<3, 2>>(3, 2, "dp4a_8x4_w3_s2"),
    make_kernel<FixedWindow<5, 1>>(5, 1, "dp4a_8x4_w5"), make_kernel<FixedWindow<5, 2>>(5, 2, "dp4a_8x4_w5_s2"),
    make_kernel<AnyWindow>(0, 0, "dp4a_4x4")};

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  const Conv2dShape& g = problem.shape;
  const bool aligned = g.in_stride % kQuad == 0 && (problem.params.y.float_output || g.out_stride % kQuad == 0);
  const bool for_tensor_cores = g.groups == 1 && g.in_stride % 16 == 0;  // the mma family is far faster there
  if (!aligned || for_tensor_cores) return;
  for (int variant = 0; variant < static_cast<int>(std::size(kKernels)); ++variant) {
    const Kernel& kernel = kKernels[variant];
    const bool fits = kernel.width == g.kernel_w && kernel.stride == g.stride_w && g.dilation_w == 1;
    if (kernel.width == 0 || fits) found.push_back({.variant = variant, .name = kernel.name});
  }
}

std::vector<uint8_t> pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const InputQuads input(g);
  const int taps = g.kernel_h * g.kernel_w, channels = round_up(g.out_c, kQuad);
  const size_t tap_bytes = static_cast<size_t>(input.count) * channels * kQuad;
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, channels, taps * tap_bytes);
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    const int skipped = k / input.group_k * input.group_c - input.first(k / kQuad);
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < input.group_c; ++c) {
        const int lane = skipped + c;  // byte within the words that this quad reads
        weight[tap * tap_bytes + (static_cast<size_t>(lane / kQuad) * channels + k) * kQuad + lane % kQuad] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * taps + tap) * input.group_c + c]);
      }
    }
  }
  return packed;
}

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const int channels = round_up(g.out_c, kQuad);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const Kernel& kernel = kKernels[conv.variant];
  const unsigned quads = channels / kQuad, tiles = blocks_for(g.out_w, kernel.pixels);
  const Dp4aArgs args{g,
                      CudaEpilogue(p),
                      CodeLookup(data),
                      cuda_channel_constants(packed, channels),
                      InputQuads(g),
                      reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
                      static_cast<const uint8_t*>(data.x),
                      data.residual,
                      static_cast<uint8_t*>(data.y),
                      thread_count(static_cast<long>(data.images) * g.out_h * tiles * quads, "dp4a convolution"),
                      quads,
                      tiles,
                      four_codes(p.x.zero_point)};
  launch_overlapped(kernel.run[p.x.is_signed], blocks_for(args.threads, kThreads), kThreads, 0, stream, args);
  check_launch("dp4a convolution");
}

}  // namespace

const CudaConvFamily& cuda_dp4a_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
