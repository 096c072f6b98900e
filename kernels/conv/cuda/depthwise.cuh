// SPDX-License-Identifier: Apache-2.0
// What the depthwise convolutions with square windows share. A thread computes four channels of a tile of output
// pixels, from words that hold four rows of one channel each. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/family.h"
#include "kernels/core/codes.cuh"
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"

namespace octet::kernels {

inline constexpr int kDepthwiseThreads = 128;
inline constexpr int kQuad = 4;  ///< channels of a thread

struct DepthwiseArgs {
  Conv2dShape g;
  CudaRounding rounding;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [S, ceil(R / 4), quads][kQuad channels]: the bytes of a word are rows, with 0 behind row R
  const uint8_t* x;
  uint8_t* y;
  unsigned threads, quads, tiles_h, tiles_w;  ///< quads: groups of kQuad channels; tiles_*: tiles of an image
  uint32_t padding;                           ///< four codes of real 0
};

using DepthwiseKernel = void (*)(DepthwiseArgs);

/// The tile and channels that a thread computes.
struct DepthwisePlace {
  bool none;  ///< whether the thread has nothing to do
  unsigned quad, image;
  int oy, ox;

  __device__ __forceinline__ DepthwisePlace(const DepthwiseArgs& a, int rows, int columns) {
    const unsigned thread = blockIdx.x * kDepthwiseThreads + threadIdx.x, tile = thread / a.quads;
    none = thread >= a.threads;
    quad = thread % a.quads, image = tile / a.tiles_w / a.tiles_h;
    ox = tile % a.tiles_w * columns, oy = tile / a.tiles_w % a.tiles_h * rows;
  }
};

/// Returns the sum that started from CudaRounding's constant. A few dozen products stay far below 2^22, so the biased
/// sum is already the bits of a float.
__device__ __forceinline__ float exact_float(int32_t biased_acc) {
  return __int_as_float(biased_acc) - CudaRounding::kRoundingConstant;
}

/// The constants of a thread's four channels.
struct QuadConstants {
  float multiplier[kQuad], bias[kQuad];
  int32_t init[kQuad];  ///< biased as exact_float() expects

  __device__ __forceinline__ QuadConstants(const DepthwiseArgs& a, int quad) {
    const float4 m = __ldg(reinterpret_cast<const float4*>(a.constants.multiplier) + quad);
    const float4 b = __ldg(reinterpret_cast<const float4*>(a.constants.bias) + quad);
    const int4 from = __ldg(reinterpret_cast<const int4*>(a.constants.init) + quad);
    multiplier[0] = m.x, multiplier[1] = m.y, multiplier[2] = m.z, multiplier[3] = m.w;
    bias[0] = b.x, bias[1] = b.y, bias[2] = b.z, bias[3] = b.w;
    init[0] = from.x, init[1] = from.y, init[2] = from.z, init[3] = from.w;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) init[i] += CudaRounding::kRoundingConstantBits;
  }

  /// Returns the codes of four sums, after the look-up if there is one. Channels past the last are padding lanes, which
  /// may hold anything.
  __device__ __forceinline__ uint32_t finish(const int32_t (&sum)[kQuad], const DepthwiseArgs& a) const {
    int32_t code[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) code[i] = a.rounding(fmaf(exact_float(sum[i]), multiplier[i], bias[i]));
    const uint32_t codes = pack_codes(code[0], code[1], code[2], code[3]);
    return a.lookup.wanted() ? a.lookup.word(codes) : codes;
  }
};

/// Copies the words of four channels to an array.
__device__ __forceinline__ void to_array(const uint4& from, uint32_t (&to)[kQuad]) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

/// Returns whether a depthwise kernel for windows of window x window can run this convolution.
inline bool depthwise_fits(const CudaConvProblem& problem, int window) {
  const Conv2dShape& g = problem.shape;
  const bool depthwise = g.groups == g.in_c && g.out_c == g.in_c;
  const bool square = g.kernel_h == window && g.kernel_w == window && g.dilation_h == 1 && g.dilation_w == 1 &&
                      g.stride_h == g.stride_w && g.stride_h <= 2;
  const bool words = g.in_stride % kQuad == 0 && g.out_stride % kQuad == 0;
  return depthwise && square && words && !problem.params.y.float_output && !problem.params.has_residual;
}

/// Packs constants and weights as DepthwiseArgs describes them; CudaConvFamily::pack of all depthwise families.
inline std::vector<uint8_t> depthwise_pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p,
                                           const Conv2dWeights& w) {
  const int window = g.kernel_h, channels = round_up(g.out_c, kQuad), words = (window + 3) / 4;
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, p, w, channels, static_cast<size_t>(window) * words * channels * sizeof(uint32_t));
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    for (int r = 0; r < window; ++r) {
      for (int s = 0; s < window; ++s) {
        weight[((static_cast<size_t>(s) * words + r / 4) * channels + k) * sizeof(uint32_t) + r % 4] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * window + r) * window + s]);
      }
    }
  }
  return packed;
}

/// Launches `kernel`, whose threads compute rows x columns output pixels each.
inline void launch_depthwise(DepthwiseKernel kernel, int rows, int columns, const Conv2dShape& g, const Conv2dParams& p,
                             const CudaConv2dData& data, CudaStream stream) {
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int channels = round_up(g.out_c, kQuad);
  const unsigned quads = channels / kQuad, tiles_h = blocks_for(g.out_h, rows), tiles_w = blocks_for(g.out_w, columns);
  const DepthwiseArgs args{
      g,
      CudaEpilogue(p).rounding,
      CodeLookup(data),
      cuda_channel_constants(packed, channels),
      reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
      static_cast<const uint8_t*>(data.x),
      static_cast<uint8_t*>(data.y),
      thread_count(static_cast<long>(data.images) * tiles_h * tiles_w * quads, "depthwise convolution"),
      quads,
      tiles_h,
      tiles_w,
      four_codes(p.x.zero_point)};
  launch_overlapped(kernel, blocks_for(args.threads, kDepthwiseThreads), kDepthwiseThreads, 0, stream, args);
  check_launch("depthwise convolution");
}

}  // namespace octet::kernels
