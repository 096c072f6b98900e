// SPDX-License-Identifier: Apache-2.0
// Any convolution, with one thread per output value. Neighbouring threads compute neighbouring channels of a pixel, so
// that they share its codes and read adjacent weights.
#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

constexpr int kChannels = 32, kPixels = 8;  // of a thread block
constexpr int kGroup = 4;                   // input channels of one dp4a

struct DirectArgs {
  Conv2dShape g;
  CudaEpilogue epilogue;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint32_t* weight;  ///< [R, S, quads of a group's channels, padded out_c][4], missing channels 0
  const uint8_t* x;
  const void* residual;
  void* y;
  int pixels, padded_channels, x_zero_point;
};

/// Loads four codes: a whole word, or if the word may not be read whole, its first `count` bytes.
template <bool kWords>
__device__ uint32_t load_quad(const uint8_t* from, int count) {
  if constexpr (kWords) return *reinterpret_cast<const uint32_t*>(from);
  uint32_t word = 0;
  for (int i = 0; i < min(count, kGroup); ++i) word |= static_cast<uint32_t>(from[i]) << (8 * i);
  return word;
}

template <bool kSigned, bool kWords>
__global__ void __launch_bounds__(kChannels* kPixels) direct_kernel(DirectArgs a) {
  wait_for_previous_kernel();
  const int k = blockIdx.y * kChannels + threadIdx.x;
  const int pixel = blockIdx.x * kPixels + threadIdx.y;
  if (k >= a.g.out_c || pixel >= a.pixels) return;
  const int ox = pixel % a.g.out_w, oy = pixel / a.g.out_w % a.g.out_h, image = pixel / a.g.out_w / a.g.out_h;
  const int group_c = a.g.in_c / a.g.groups;
  const uint8_t* x = a.x + static_cast<ptrdiff_t>(image) * a.g.in_h * a.g.in_w * a.g.in_stride +
                     k / (a.g.out_c / a.g.groups) * group_c;
  const uint32_t* weight = a.weight + k;
  const uint32_t padding = four_codes(a.x_zero_point);

  int32_t acc = a.constants.init[k];
  for (int r = 0; r < a.g.kernel_h; ++r) {
    const int iy = oy * a.g.stride_h - a.g.pad_h + r * a.g.dilation_h;
    for (int s = 0; s < a.g.kernel_w; ++s) {
      const int ix = ox * a.g.stride_w - a.g.pad_w + s * a.g.dilation_w;
      const bool inside = iy >= 0 && iy < a.g.in_h && ix >= 0 && ix < a.g.in_w;
      const uint8_t* from = x + (static_cast<ptrdiff_t>(iy) * a.g.in_w + ix) * a.g.in_stride;
      for (int c = 0; c < group_c; c += kGroup, weight += a.padded_channels) {
        acc = dot4<kSigned>(inside ? load_quad<kWords>(from + c, group_c - c) : padding, *weight, acc);
      }
    }
  }
  finish_output(a.epilogue, a.lookup, rescale(acc, a.constants.multiplier[k], a.constants.bias[k]), a.residual,
                static_cast<ptrdiff_t>(pixel) * a.g.residual_stride + k, a.y,
                static_cast<ptrdiff_t>(pixel) * a.g.out_stride + k);
}

void choices(const CudaConvProblem&, std::vector<CudaConv2d>& found) { found.push_back({.name = "direct"}); }

std::vector<uint8_t> pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const int channels = round_up(g.out_c, kChannels), group_c = g.in_c / g.groups;
  const int taps = g.kernel_h * g.kernel_w, padded_c = round_up(group_c, kGroup);
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, channels, static_cast<size_t>(channels) * taps * padded_c);
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    for (int tap = 0; tap < taps; ++tap) {
      for (int c = 0; c < group_c; ++c) {
        const size_t quad = (static_cast<size_t>(tap) * padded_c + c) / kGroup;
        weight[(quad * channels + k) * kGroup + c % kGroup] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * taps + tap) * group_c + c]);
      }
    }
  }
  return packed;
}

void launch(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const int channels = round_up(g.out_c, kChannels);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const DirectArgs args{g,
                        CudaEpilogue(p),
                        CodeLookup(data),
                        cuda_channel_constants(packed, channels),
                        reinterpret_cast<const uint32_t*>(packed + cuda_constants_bytes(channels)),
                        static_cast<const uint8_t*>(data.x),
                        data.residual,
                        data.y,
                        data.images * g.out_h * g.out_w,
                        channels,
                        p.x.zero_point};
  const dim3 blocks(blocks_for(args.pixels, kPixels), channels / kChannels), threads(kChannels, kPixels);
  // A word may extend past the channels of a pixel, where weights are 0, but not past its stride.
  const bool words = g.in_stride % kGroup == 0 && (g.groups == 1 || g.in_c / g.groups % kGroup == 0);
  const auto kernel = p.x.is_signed ? (words ? direct_kernel<true, true> : direct_kernel<true, false>)
                                    : (words ? direct_kernel<false, true> : direct_kernel<false, false>);
  launch_overlapped(kernel, blocks, threads, 0, stream, args);
  check_launch("direct convolution");
}

}  // namespace

const CudaConvFamily& cuda_direct_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
