// What depthwise convolutions of square windows share: a thread computes four channels of a tile of output pixels, from
// words that hold four rows of one channel each. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"

namespace octet::kernels {

inline constexpr int kDepthwiseThreads = 128;
inline constexpr int kQuad = 4;

struct DepthwiseArgs {
  Conv2dShape g;
  CudaRounding rounding;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [S, ceil(R / 4), quads][kQuad channels]: the bytes of a word are rows, those behind R are 0
  const uint8_t* x;
  uint8_t* y;
  unsigned threads, quads, tiles_h, tiles_w;  ///< quads of a pixel's channels, tiles of an image
  uint32_t padding;                           ///< four codes of real 0
};

using DepthwiseKernel = void (*)(DepthwiseArgs);

/// Where a thread is at work.
struct DepthwisePlace {
  bool none;  ///< the thread has nothing to do
  unsigned quad, image;
  int oy, ox;

  __device__ __forceinline__ DepthwisePlace(const DepthwiseArgs& a, int rows, int columns) {
    const unsigned thread = blockIdx.x * kDepthwiseThreads + threadIdx.x, tile = thread / a.quads;
    none = thread >= a.threads;
    quad = thread % a.quads, image = tile / a.tiles_w / a.tiles_h;
    ox = tile % a.tiles_w * columns, oy = tile / a.tiles_w % a.tiles_h * rows;
  }
};

/// Some tens of products stay far below 2^22, so a sum that starts from CudaRounding's constant is a float's bits
/// already.
__device__ __forceinline__ float exact_float(int32_t biased_acc) {
  return __int_as_float(biased_acc) - CudaRounding::kRoundingConstant;
}

/// What a thread's four channels need beside weights.
struct QuadConstants {
  float multiplier[kQuad], bias[kQuad];
  int32_t init[kQuad];  ///< as exact_float() wants it

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

  /// The codes of four sums, looked up if that is wanted. Channels past the last are lanes behind it, which may hold
  /// anything.
  __device__ __forceinline__ uint32_t finish(const int32_t (&sum)[kQuad], const DepthwiseArgs& a) const {
    int32_t code[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) code[i] = a.rounding(fmaf(exact_float(sum[i]), multiplier[i], bias[i]));
    const uint32_t codes = pack_codes(code[0], code[1], code[2], code[3]);
    return a.lookup.wanted() ? a.lookup.word(codes) : codes;
  }
};

/// Four weights of one word, or codes, of four channels.
__device__ __forceinline__ void to_array(const uint4& from, uint32_t (&to)[kQuad]) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

/// True when a depthwise kernel for windows of window x window can run this convolution.
bool depthwise_fits(const CudaConvProblem& problem, int window);

/// Constants and weights as DepthwiseArgs wants them.
std::vector<uint8_t> depthwise_pack(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w);

/// Launches `kernel`, whose threads compute rows x columns pixels each.
void launch_depthwise(DepthwiseKernel kernel, int rows, int columns, const Conv2dShape& g, const Conv2dParams& p,
                      const CudaConv2dData& data, CudaStream stream);

}  // namespace octet::kernels
