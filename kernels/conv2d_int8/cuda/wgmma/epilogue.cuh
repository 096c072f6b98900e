// From a group's sums to codes: the start of each sum by its window's border, then as every family (fragments.cuh).
// Thread `lane` of warp `w` of a group holds rows 64 m + 16 w + lane / 4 and 8 further on, and of every 64 columns 16
// neighbouring channels (wgmma_weight_row).
#pragma once

#include "kernels/conv2d_int8/cuda/wgmma/args.cuh"

namespace octet::kernels {

/// The pixels of the output that a thread's rows are; negative: none.
template <class Sums>
struct WgmmaPixels {
  int of_row[Sums::kM * 2];
};

/// The row of a tile that is row `index` of a thread's.
__device__ __forceinline__ int wgmma_row(int index) {
  return index / 2 * 64 + index % 2 * 8 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

/// The first of a thread's columns.
__device__ __forceinline__ int wgmma_column() { return threadIdx.x % 4 * 16; }

/// Read where it stands, and kept by no cache level for long.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// The residual of a thread's sums, read before they are computed.
template <class Sums>
struct WgmmaResidual {
  CodeWords<4> codes[Sums::kM * 2][Sums::kN / 8];

  /// `channel` is the first of the thread's.
  __device__ __forceinline__ void load(const ConvOutput& out, const WgmmaPixels<Sums>& pixels, int channel) {
#pragma unroll
    for (int row = 0; row < Sums::kM * 2; ++row) {
      const int pixel = pixels.of_row[row];
      const uint8_t* from = out.residual + static_cast<int64_t>(pixel) * out.residual_stride + channel;
#pragma unroll
      for (int n = 0; n < Sums::kN / 8; ++n) {
        if (pixel < 0 || channel + n * 64 >= out.out_c) continue;
        const uint4 v = load_once(from + n * 64);
        uint32_t(&word)[4] = codes[row][n].word;
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
      }
    }
  }
};

/// Where a sum's start lies.
__device__ __forceinline__ const int32_t* start_of(const WgmmaOutput& p, int pixel) {
  const BorderStarts& s = p.starts;
  if (s.row_class == nullptr) return s.start;
  const int image = p.by_image.divide(pixel), in_image = pixel - image * static_cast<int>(p.by_image.divisor);
  const int oy = p.by_row.divide(in_image), ox = in_image - oy * static_cast<int>(p.by_row.divisor);
  return s.start + (s.row_class[oy] * s.column_classes + s.column_class[ox]) * s.channels;
}

/// Adds the starts to whole sums. `channel` is the first of the thread's.
template <class Sums>
__device__ __forceinline__ void add_starts(const WgmmaOutput& p, Sums& sums, const WgmmaPixels<Sums>& pixels,
                                           int channel) {
#pragma unroll
  for (int row = 0; row < Sums::kM * 2; ++row) {
    asm volatile("" ::: "memory");  // one row's loads at a time: there are no registers for more
    const int32_t* start = start_of(p, max(pixels.of_row[row], 0)) + channel;
#pragma unroll
    for (int n = 0; n < Sums::kN; n += 2) {
      const int4 from = *reinterpret_cast<const int4*>(start + n / 8 * 64 + n % 8 * 2);
      int32_t *left = &sums.value[row / 2][n][row % 2 * 2], *right = &sums.value[row / 2][n + 1][row % 2 * 2];
      left[0] += from.x, left[1] += from.y, right[0] += from.z, right[1] += from.w;
    }
  }
}

/// Four floats that no kernel writes, read here and not for all tiles at once: there are no registers for that.
__device__ __forceinline__ float4 load_here(const float* from) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
}

template <bool kResidual, class Sums>
__device__ __forceinline__ void store_group_codes(const WgmmaOutput& p, const Sums& sums, WgmmaResidual<Sums>& residual,
                                                  const WgmmaPixels<Sums>& pixels, int channel) {
  const ConvOutput& out = p.out;
#pragma unroll
  for (int n = 0; n < Sums::kN; n += 8) {
    const int k = channel + n * 8;
    if (k >= out.out_c) return;
    float4 by[4], plus[4];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      by[word] = load_here(out.constants.multiplier + k + word * 4);
      plus[word] = load_here(out.constants.bias + k + word * 4);
    }
#pragma unroll
    for (int row = 0; row < Sums::kM * 2; ++row) {
      CodeWords<4>& codes = residual.codes[row][n / 8];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const int32_t *left = &sums.value[row / 2][n + word * 2][row % 2 * 2],
                      *right = &sums.value[row / 2][n + word * 2 + 1][row % 2 * 2];
        const int32_t acc[4] = {left[0], left[1], right[0], right[1]};
        codes.word[word] =
            finish_codes<kResidual>(out, p.residual, acc, by[word], plus[word], kResidual ? codes.word[word] : 0);
      }
      out.rounding.finish(codes.word);
      const int pixel = pixels.of_row[row];
      if (pixel >= 0) codes.store(static_cast<uint8_t*>(out.y) + static_cast<int64_t>(pixel) * out.out_stride + k);
    }
  }
}

/// Ends a thread's sums of a tile. `channel` is the first of the thread's.
template <class Sums>
__device__ __forceinline__ void finish_group(const WgmmaOutput& p, Sums& sums, WgmmaResidual<Sums>& residual,
                                             const WgmmaPixels<Sums>& pixels, int channel) {
  if (p.starts.start != nullptr) add_starts(p, sums, pixels, channel);
  if (p.out.residual != nullptr) {
    store_group_codes<true>(p, sums, residual, pixels, channel);
  } else {
    store_group_codes<false>(p, sums, residual, pixels, channel);
  }
}

}  // namespace octet::kernels
