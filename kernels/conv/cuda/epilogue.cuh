// SPDX-License-Identifier: Apache-2.0
// What every convolution kernel does with an accumulator, bit for bit as quantize.h:
//   t = fma(float(acc), multiplier[k], bias[k]);  t = fma(float(rq - zr), residual_multiplier, t);  y = round_code(t)
// and how kernels on tensor cores do it with the fragments of sums that a thread holds. Include it in .cu files only.
#pragma once

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cuda/family.h"
#include "kernels/conv/cuda/rounding.h"
#include "kernels/core/codes.cuh"

namespace octet::kernels {

/// The look-up that a convolution applies to the codes it is about to write. The table's two cache lines stay in L1;
/// copies in shared memory, one per bank to avoid conflicts, took longer (tools/lab/notebooks/kernels.md). The kernels
/// of wgmma, whose operands go through L1 too, read one copy there (SharedLookup in wgmma/epilogue.cuh).
struct CodeLookup {
  const uint8_t* table;  ///< [256] on the device, which no kernel writes; null if codes are not looked up

  explicit CodeLookup(const CudaConv2dData& data) : table(data.lookup) {}

#if defined(__CUDACC__)
  __device__ __forceinline__ bool wanted() const { return table != nullptr; }
  __device__ __forceinline__ uint32_t code(uint32_t byte) const { return __ldg(table + byte); }
  /// Returns the word with the four looked-up codes.
  __device__ __forceinline__ uint32_t word(uint32_t codes) const {
    const uint32_t low = __byte_perm(code(codes & 255), code(codes >> 8 & 255), 0x0040);
    const uint32_t high = __byte_perm(code(codes >> 16 & 255), code(codes >> 24), 0x0040);
    return __byte_perm(low, high, 0x5410);
  }
#endif
};

/// The parameters that follow multiplier and bias: residual, rounding, output type.
struct CudaEpilogue {
  CudaRounding rounding;
  bool float_output, has_residual, residual_signed;
  int32_t residual_zero_point;
  float residual_multiplier;

  explicit CudaEpilogue(const Conv2dParams& p)
      : rounding(p.y),
        float_output(p.y.float_output),
        has_residual(p.has_residual),
        residual_signed(p.residual.is_signed),
        residual_zero_point(p.residual.zero_point),
        residual_multiplier(p.residual_multiplier) {}

  __device__ float add_residual(float t, int32_t code) const {
    return fmaf(static_cast<float>(code - residual_zero_point), residual_multiplier, t);
  }

  /// Returns t, with element `index` of the residual added if there is one.
  __device__ float with_residual(float t, const void* residual, ptrdiff_t index) const {
    return has_residual ? add_residual(t, load_code(residual, index, residual_signed)) : t;
  }
};

/// Finishes one output: `index` is its element in y, `residual_index` its element in the residual.
__device__ inline void finish_output(const CudaEpilogue& e, const CodeLookup& lookup, float t, const void* residual,
                                     ptrdiff_t residual_index, void* y, ptrdiff_t index) {
  t = e.with_residual(t, residual, residual_index);
  if (e.float_output) {
    static_cast<float*>(y)[index] = t;
  } else {
    const uint8_t code = static_cast<uint8_t>(e.rounding(t));
    static_cast<uint8_t*>(y)[index] = lookup.wanted() ? static_cast<uint8_t>(lookup.code(code)) : code;
  }
}

/// The sums of one thread: [fragments of 16 pixels][fragments of 8 channels][2 rows x 2 columns]. Of each fragment
/// thread `lane` of a warp holds rows lane / 4 and lane / 4 + 8 of two columns. The columns are permuted in the
/// weights, so that a thread's adjacent fragments are neighbouring channels.
template <int kRows, int kColumns>
struct Fragments {
  static constexpr int kM = kRows, kN = kColumns;
  int32_t value[kM][kN][4];
};

/// The output tensor of a convolution on tensor cores, and how its codes are computed.
struct ConvOutput {
  CudaEpilogue epilogue;
  PackedRounding rounding;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint8_t* residual;  ///< [pixels, residual_stride] or null
  void* y;                  ///< [pixels, out_stride]
  int pixels, out_c, out_stride, residual_stride;
  bool float_words;  ///< whether four neighbouring floats of y are aligned to 16 bytes

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
        residual_stride(g.residual_stride),
        float_words(g.out_c % 4 == 0 && g.out_stride % 4 == 0 && address(data.y) % 16 == 0) {}
};

/// The words of codes that a thread reads or writes in one access.
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

/// Reads codes of a residual from words as float(code - zero point), without integer conversions: a byte placed below
/// the exponent of 2^23 is the float 2^23 + code, and one exact subtraction gives the value.
struct ResidualCodes {
  uint32_t flip;  ///< turns int8 codes into uint8 codes + 128
  float offset;   ///< undoes the 128, 2^23, and the zero point

  explicit OCTET_HOST_DEVICE ResidualCodes(const CudaEpilogue& e)
      : flip(e.residual_signed ? 0x80808080u : 0u),
        offset(static_cast<float>((1 << 23) + e.residual_zero_point + (e.residual_signed ? 128 : 0))) {}

  __device__ __forceinline__ float operator()(uint32_t word, int lane) const {
    return __uint_as_float(__byte_perm(word ^ flip, 0x4B000000, 0x7540 + lane)) - offset;
  }
};

/// Turns the sums of four neighbouring channels of a pixel into a word of codes, on which rounding.finish() has yet to
/// be called. `added` is the residual's word.
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

/// What one thread needs to turn its sums into codes: constants of its channels from `channel` on, and the residual of
/// pixels first_pixel + 8 i below `pixels`. Loaded separately, because it need not wait for the sums.
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

/// Turns the sums of one thread into codes and stores them.
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

/// Exchanges values among each kWords neighbouring lanes, so that afterwards four[i] is what four[lane % kWords] was in
/// the i-th of these lanes. All lanes of the warp must call it.
template <int kWords>
__device__ __forceinline__ void transpose_lanes(float (&four)[kWords][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int apart = 1; apart < kWords; apart *= 2) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (i & apart) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float &low = four[i][c], &high = four[i + apart][c];
        const bool upper = lane & apart;
        const float other = __shfl_xor_sync(0xffffffff, upper ? low : high, apart);
        low = upper ? other : low;
        high = upper ? high : other;
      }
    }
  }
}

/// Stores the sums of one thread as float32. Where rows are aligned to 16 bytes, neighbouring lanes exchange their
/// values first and write neighbouring channels together, because memory is written in sectors of 32 bytes; other rows
/// are written value by value. All lanes of the warp must call it, also those whose channels do not exist.
template <class Sums>
__device__ __forceinline__ void store_floats(const ConvOutput& p, const Sums& sums,
                                             const OutputOperands<Sums>& operands, int first_pixel, int channel) {
  constexpr int kWords = Sums::kN / 2;
  const auto of_channel = [](const float4& four, int i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  };
  // A lane's words come from kWords lanes, whose channels begin `apart` from each other.
  const int in_group = threadIdx.x % kWords, apart = __shfl_down_sync(0xffffffff, channel, 1, 4) - channel;
  const int spread = __shfl_sync(0xffffffff, apart, 0, 4);
#pragma unroll
  for (int row = 0; row < Sums::kM * 2; ++row) {
    const int64_t pixel = first_pixel + row * 8;
    float value[kWords][4];
#pragma unroll
    for (int i = 0; i < Sums::kN * 2; ++i) {
      const int32_t acc = sums.value[row / 2][i / 2][row % 2 * 2 + i % 2];
      float t = rescale(acc, of_channel(operands.multiplier[i / 4], i % 4), of_channel(operands.bias[i / 4], i % 4));
      if (pixel < p.pixels && channel + i < p.out_c) {
        t = p.epilogue.with_residual(t, p.residual, pixel * p.residual_stride + channel + i);
      }
      value[i / 4][i % 4] = t;
    }
    float* to = static_cast<float*>(p.y) + pixel * p.out_stride;
    if (p.float_words) {
      transpose_lanes(value);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int first = channel + (i - in_group) * spread + in_group * 4;
        if (pixel < p.pixels && first < p.out_c) {
          *reinterpret_cast<float4*>(to + first) = make_float4(value[i][0], value[i][1], value[i][2], value[i][3]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < Sums::kN * 2; ++i) {
        if (pixel < p.pixels && channel + i < p.out_c) to[channel + i] = value[i / 4][i % 4];
      }
    }
  }
}

}  // namespace octet::kernels
