// From sums to codes: parts of a split sum are added, then scale, bias, residual, clamp and store. Thread `lane` of a
// warp holds, of each row of 16 x 8 fragments, rows lane / 4 and lane / 4 + 8, and warp_n / 4 neighbouring channels
// (mma_weight_row).
#pragma once

#include "kernels/conv2d_int8/cuda/mma/args.cuh"
#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

/// The sums of one thread: [rows of fragments][columns of fragments][2 rows x 2 columns].
template <int kTile>
struct MmaSums {
  static constexpr int kFragsM = kMmaTiles[kTile].warp_m() / 16, kFragsN = kMmaTiles[kTile].warp_n() / 8;
  int32_t value[kFragsM][kFragsN][4];
};

/// Adds up the parts of a split sum: true in the block that came last, whose sums are now whole. Sums of int32 are the
/// same in any order.
template <int kTile>
__device__ __forceinline__ bool add_parts(const MmaArgs& p, MmaSums<kTile>& sums) {
  using Sums = MmaSums<kTile>;
  constexpr MmaTile kT = kMmaTiles[kTile];
  constexpr int kVectors = kT.block_m * kT.block_n / 4;
  const int tile = blockIdx.x, part = blockIdx.y;
  int4* parts = reinterpret_cast<int4*>(p.partial) + static_cast<int64_t>(tile) * p.split * kVectors + threadIdx.x;
  int4* mine = parts + static_cast<int64_t>(part) * kVectors;
#pragma unroll
  for (int m = 0; m < Sums::kFragsM; ++m) {
#pragma unroll
    for (int n = 0; n < Sums::kFragsN; ++n) {
      const int32_t(&v)[4] = sums.value[m][n];
      __stcg(mine + (m * Sums::kFragsN + n) * kT.threads(), make_int4(v[0], v[1], v[2], v[3]));
    }
  }
  __shared__ int arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived = atomicAdd(p.counters + tile, 1);
    if (arrived == p.split - 1) p.counters[tile] = 0;  // for the next launch
  }
  __syncthreads();
  if (arrived != p.split - 1) return false;
  __threadfence();
  for (int other = 0; other < p.split; ++other) {
    if (other == part) continue;
    const int4* theirs = parts + static_cast<int64_t>(other) * kVectors;
#pragma unroll
    for (int m = 0; m < Sums::kFragsM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kFragsN; ++n) {
        const int4 v = __ldcg(theirs + (m * Sums::kFragsN + n) * kT.threads());
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

  __device__ __forceinline__ explicit ResidualCodes(const CudaEpilogue& e)
      : flip(e.residual_signed ? 0x80808080u : 0u),
        offset(static_cast<float>((1 << 23) + e.residual_zero_point + (e.residual_signed ? 128 : 0))) {}

  __device__ __forceinline__ float operator()(uint32_t word, int lane) const {
    return __uint_as_float(__byte_perm(word ^ flip, 0x4B000000, 0x7540 + lane)) - offset;
  }
};

/// Ends the pixels first_pixel + 8 i (those < p.pixels) of one thread: `channel` is the first of its channels.
template <int kTile, bool kResidual>
__device__ __forceinline__ void store_codes(const MmaArgs& p, const MmaSums<kTile>& sums, int first_pixel,
                                            int channel) {
  using Sums = MmaSums<kTile>;
  constexpr int kWords = Sums::kFragsN / 2, kRows = Sums::kFragsM * 2;
  const CudaEpilogue& e = p.epilogue;
  const ResidualCodes residual(e);
  CodeWords<kWords> codes[kRows];
  if constexpr (kResidual) {
    const uint8_t* from = p.residual + static_cast<int64_t>(first_pixel) * p.g.residual_stride + channel;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (first_pixel + row * 8 < p.pixels) codes[row].load(from + static_cast<int64_t>(row) * 8 * p.g.residual_stride);
    }
  }
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    const float4 multiplier = *reinterpret_cast<const float4*>(p.constants.multiplier + channel + word * 4);
    const float4 bias = *reinterpret_cast<const float4*>(p.constants.bias + channel + word * 4);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int32_t(&left)[4] = sums.value[row / 2][word * 2], (&right)[4] = sums.value[row / 2][word * 2 + 1];
      const int32_t acc[4] = {left[row % 2 * 2], left[row % 2 * 2 + 1], right[row % 2 * 2], right[row % 2 * 2 + 1]};
      float t[4] = {rescale(acc[0], multiplier.x, bias.x), rescale(acc[1], multiplier.y, bias.y),
                    rescale(acc[2], multiplier.z, bias.z), rescale(acc[3], multiplier.w, bias.w)};
      if constexpr (kResidual) {
#pragma unroll
        for (int i = 0; i < 4; ++i) t[i] = fmaf(residual(codes[row].word[word], i), e.residual_multiplier, t[i]);
      }
      codes[row].word[word] = pack_codes(e.rounding(t[0]), e.rounding(t[1]), e.rounding(t[2]), e.rounding(t[3]));
    }
  }
  uint8_t* to = static_cast<uint8_t*>(p.y) + static_cast<int64_t>(first_pixel) * p.g.out_stride + channel;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (first_pixel + row * 8 < p.pixels) codes[row].store(to + static_cast<int64_t>(row) * 8 * p.g.out_stride);
  }
}

/// The same for float32 logits, one by one: they are few, and rows of any number of channels have no alignment.
template <int kTile>
__device__ __forceinline__ void store_floats(const MmaArgs& p, const MmaSums<kTile>& sums, int first_pixel,
                                             int channel) {
  using Sums = MmaSums<kTile>;
#pragma unroll
  for (int row = 0; row < Sums::kFragsM * 2; ++row) {
    const int64_t pixel = first_pixel + row * 8;
    if (pixel >= p.pixels) return;
#pragma unroll
    for (int i = 0; i < Sums::kFragsN * 2; ++i) {
      const int k = channel + i;
      if (k >= p.g.out_c) break;
      const int32_t acc = sums.value[row / 2][i / 2][row % 2 * 2 + i % 2];
      finish_output(p.epilogue, rescale(acc, p.constants.multiplier[k], p.constants.bias[k]), p.residual,
                    pixel * p.g.residual_stride + k, p.y, pixel * p.g.out_stride + k);
    }
  }
}

}  // namespace octet::kernels
