// From sums of tensor cores to codes: parts of a split sum are added, then scale, bias, residual, clamp and store.
// Thread `lane` of a warp holds, of each fragment of 16 pixels x 8 channels, rows lane / 4 and lane / 4 + 8 of two
// columns. The columns are permuted in the weights, so that a thread's fragments side by side are neighbouring
// channels. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/code_lookup.cuh"
#include "kernels/conv2d_int8/cuda/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/packed_rounding.cuh"

namespace octet::kernels {

/// The sums of one thread: [fragments of 16 pixels][fragments of 8 channels][2 rows x 2 columns].
template <int kRows, int kColumns>
struct Fragments {
  static constexpr int kM = kRows, kN = kColumns;
  int32_t value[kM][kN][4];
};

/// What becomes of the sums.
struct ConvOutput {
  CudaEpilogue epilogue;
  PackedRounding rounding;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint8_t* residual;  ///< [pixels, residual_stride] or null
  void* y;                  ///< [pixels, out_stride]
  int pixels, out_c, out_stride, residual_stride;

  ConvOutput(const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
             const CudaChannelConstants& of_channels)
      : epilogue(p),
        rounding(p.y),
        lookup(data),
        constants(of_channels),
        residual(p.has_residual ? static_cast<const uint8_t*>(data.residual) : nullptr),
        y(data.y),
        pixels(data.images * g.out_h * g.out_w),
        out_c(g.out_c),
        out_stride(g.out_stride),
        residual_stride(g.residual_stride) {}
};

/// A sum in parts, each computed by a block of its own.
struct SplitSum {
  int parts = 1;
  int32_t* counters = nullptr;  ///< [tiles]: parts that arrived
  int32_t* partial = nullptr;   ///< [tiles, parts, sums of a tile]
};

/// Adds up the parts of a tile: true in the threads of the block that came last, whose sums are now whole. Sums of
/// int32 are the same in any order. All kThreads threads that hold the tile's sums call it: `thread` counts them from
/// 0, `arrived` lies in shared memory and is theirs alone, wait() waits for all of them.
template <int kThreads, class Sums, class Wait>
__device__ __forceinline__ bool add_parts(const SplitSum& split, int tile, int part, Sums& sums, int thread,
                                          int& arrived, const Wait& wait) {
  constexpr int kVectors = kThreads * Sums::kM * Sums::kN;
  int4* parts = reinterpret_cast<int4*>(split.partial) + static_cast<int64_t>(tile) * split.parts * kVectors + thread;
  int4* mine = parts + static_cast<int64_t>(part) * kVectors;
#pragma unroll
  for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Sums::kN; ++n) {
      const int32_t(&v)[4] = sums.value[m][n];
      __stcg(mine + (m * Sums::kN + n) * kThreads, make_int4(v[0], v[1], v[2], v[3]));
    }
  }
  __threadfence();
  wait();
  if (thread == 0) {
    arrived = atomicAdd(split.counters + tile, 1);
    if (arrived == split.parts - 1) split.counters[tile] = 0;  // for the next launch
  }
  wait();
  if (arrived != split.parts - 1) return false;
  __threadfence();
  for (int other = 0; other < split.parts; ++other) {
    if (other == part) continue;
    const int4* theirs = parts + static_cast<int64_t>(other) * kVectors;
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; ++n) {
        const int4 v = __ldcg(theirs + (m * Sums::kN + n) * kThreads);
        int32_t(&sum)[4] = sums.value[m][n];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
  }
  return true;
}

/// Words of codes that a thread reads or writes at once.
template <int kWords>
struct CodeWords {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  uint32_t word[kWords];

  __device__ __forceinline__ void load(const void* from) {
    if constexpr (kWords == 4) {
      const uint4 v = *static_cast<const uint4*>(from);
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else if constexpr (kWords == 2) {
      const uint2 v = *static_cast<const uint2*>(from);
      word[0] = v.x, word[1] = v.y;
    } else {
      word[0] = *static_cast<const uint32_t*>(from);
    }
  }
  __device__ __forceinline__ void store(void* to) const {
    if constexpr (kWords == 4) {
      *static_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    } else if constexpr (kWords == 2) {
      *static_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    } else {
      *static_cast<uint32_t*>(to) = word[0];
    }
  }
};

/// float(code - zero point) of codes in words, without integer conversions: a byte below the exponent of 2^23 is the
/// float 2^23 + code, and one exact subtraction does the rest.
struct ResidualCodes {
  uint32_t flip;  ///< turns int8 codes into uint8 codes + 128
  float offset;   ///< undoes that, 2^23, and the zero point

  explicit OCTET_HOST_DEVICE ResidualCodes(const CudaEpilogue& e)
      : flip(e.residual_signed ? 0x80808080u : 0u),
        offset(static_cast<float>((1 << 23) + e.residual_zero_point + (e.residual_signed ? 128 : 0))) {}

  __device__ __forceinline__ float operator()(uint32_t word, int lane) const {
    return __uint_as_float(__byte_perm(word ^ flip, 0x4B000000, 0x7540 + lane)) - offset;
  }
};

/// Four neighbouring channels of a pixel, from sums to a word of codes, which rounding.finish() ends; `added` is
/// the residual's word.
template <bool kResidual>
__device__ __forceinline__ uint32_t finish_codes(const ConvOutput& p, const ResidualCodes& residual,
                                                 const int32_t (&acc)[4], const float4& multiplier, const float4& bias,
                                                 uint32_t added) {
  float t[4] = {rescale(acc[0], multiplier.x, bias.x), rescale(acc[1], multiplier.y, bias.y),
                rescale(acc[2], multiplier.z, bias.z), rescale(acc[3], multiplier.w, bias.w)};
  if constexpr (kResidual) {
#pragma unroll
    for (int i = 0; i < 4; ++i) t[i] = fmaf(residual(added, i), p.epilogue.residual_multiplier, t[i]);
  }
  return p.rounding(t[0], t[1], t[2], t[3]);
}

/// What turns the sums of one thread into codes: pixels first_pixel + 8 i (those < pixels), `channel` the first of its
/// channels. Loaded by itself, for it need not wait for the sums.
template <class Sums>
struct OutputOperands {
  static constexpr int kWords = Sums::kN / 2, kRows = Sums::kM * 2;
  float4 multiplier[kWords], bias[kWords];
  CodeWords<kWords> residual[kRows];

  __device__ __forceinline__ void load_constants(const ConvOutput& p, int channel) {
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      multiplier[word] = *reinterpret_cast<const float4*>(p.constants.multiplier + channel + word * 4);
      bias[word] = *reinterpret_cast<const float4*>(p.constants.bias + channel + word * 4);
    }
  }
  __device__ __forceinline__ void load_residual(const ConvOutput& p, int first_pixel, int channel) {
    const uint8_t* from = p.residual + static_cast<int64_t>(first_pixel) * p.residual_stride + channel;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (first_pixel + row * 8 < p.pixels) {
        residual[row].load(from + static_cast<int64_t>(row) * 8 * p.residual_stride);
      }
    }
  }
};

/// Ends the sums of one thread.
template <bool kResidual, class Sums>
__device__ __forceinline__ void store_codes(const ConvOutput& p, const Sums& sums, const OutputOperands<Sums>& operands,
                                            int first_pixel, int channel) {
  constexpr int kWords = Sums::kN / 2, kRows = Sums::kM * 2;
  const ResidualCodes residual(p.epilogue);
  CodeWords<kWords> codes[kRows];
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int32_t(&left)[4] = sums.value[row / 2][word * 2], (&right)[4] = sums.value[row / 2][word * 2 + 1];
      const int32_t acc[4] = {left[row % 2 * 2], left[row % 2 * 2 + 1], right[row % 2 * 2], right[row % 2 * 2 + 1]};
      codes[row].word[word] = finish_codes<kResidual>(p, residual, acc, operands.multiplier[word], operands.bias[word],
                                                      kResidual ? operands.residual[row].word[word] : 0);
    }
  }
  uint8_t* to = static_cast<uint8_t*>(p.y) + static_cast<int64_t>(first_pixel) * p.out_stride + channel;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    p.rounding.finish(codes[row].word);
    if (p.lookup.wanted()) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) codes[row].word[word] = p.lookup.word(codes[row].word[word]);
    }
    if (first_pixel + row * 8 < p.pixels) codes[row].store(to + static_cast<int64_t>(row) * 8 * p.out_stride);
  }
}

/// The same for float32 logits, one by one: they are few, and rows of any number of channels have no alignment.
template <class Sums>
__device__ __forceinline__ void store_floats(const ConvOutput& p, const Sums& sums,
                                             const OutputOperands<Sums>& operands, int first_pixel, int channel) {
  const auto of_channel = [](const float4& four, int i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  };
#pragma unroll
  for (int row = 0; row < Sums::kM * 2; ++row) {
    const int64_t pixel = first_pixel + row * 8;
    if (pixel >= p.pixels) return;
#pragma unroll
    for (int i = 0; i < Sums::kN * 2; ++i) {
      const int k = channel + i;
      if (k >= p.out_c) break;
      const int32_t acc = sums.value[row / 2][i / 2][row % 2 * 2 + i % 2];
      const float t =
          rescale(acc, of_channel(operands.multiplier[i / 4], i % 4), of_channel(operands.bias[i / 4], i % 4));
      finish_output(p.epilogue, p.lookup, t, p.residual, pixel * p.residual_stride + k, p.y, pixel * p.out_stride + k);
    }
  }
}

}  // namespace octet::kernels
