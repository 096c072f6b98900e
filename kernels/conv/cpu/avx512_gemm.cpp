// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI micro-kernels of the matrix product: a tile of up to 14 pixels x 32 channels (or 6 x 64 if there are
// few rows), all of k.
//
// Layout: activations are rows of bytes; weights come as [k / 4][channels][4], so that one vpdpbusd adds 4 products to
// each of 16 channels. Per step of k (4 bytes): load 2 weight vectors, then for each row broadcast 4 bytes and issue 2
// vpdpbusd. 14 x 2 accumulators + 2 weights + 1 broadcast = 31 of 32 registers, and nothing leaves them before codes.
//
// Roofline: 28 vpdpbusd take 14 cycles on a core with two 512-bit pipes. They need 16 loads (of 28 that two load ports
// could do) and, when neither operand is in L1, 128 + 14 * 4 bytes from L2: 13 bytes a cycle, well below its 32 to 64.
// 28 independent chains hide the latency (4) of both pipes, as 8 already would. The 6 x 64 tile reads 23 bytes a cycle
// but keeps 4 chains alive for a single row, which is what a linear layer of batch 1 has.
//
// Everything is unrolled by pragma: GCC otherwise leaves the accumulators in memory.
#include <immintrin.h>

#include "kernels/conv/cpu/avx512_epilogue.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

constexpr int kLanes = 16;

inline __mmask32 lanes_mask(int channels) {
  return channels >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << channels) - 1u);
}

/// Finishes the last of an odd number of vectors: 16 channels in their natural order, row by row.
template <bool kResidual, bool kLogits, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish_single(const GemmTile& tile, const EpilogueConstants& constants,
                                       __m512i (&acc)[kRows][kWidth]) {
  constexpr int n = kWidth - 1;
  const __mmask16 mask = static_cast<__mmask16>(lanes_mask(tile.channels - n * kLanes));
#pragma GCC unroll 14
  for (int m = 0; m < kRows; ++m) {
    // Forces one row at a time: GCC would otherwise start all rows at once and run out of registers.
    __asm__ volatile("" : "+v"(acc[m][n]) : : "memory");
    __m512 t = rescale16(acc[m][n], tile.multiplier + n * kLanes, tile.bias + n * kLanes);
    if constexpr (kResidual) {
      const __m128i codes = _mm_maskz_loadu_epi8(mask, tile.residual + m * tile.residual_stride + n * kLanes);
      t = add_residual16(t, _mm512_or_si512(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(kTwoTo23Bits)), constants);
    }
    const ptrdiff_t out = m * tile.y_stride + n * kLanes;
    if constexpr (kLogits) {
      _mm512_mask_storeu_ps(static_cast<float*>(tile.y) + out, mask, t);
    } else {
      const __m256i words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_min_ps(constants.high, t)));
      const __m256i shifted = _mm256_adds_epi16(words, _mm512_castsi512_si256(constants.zero_point_words));
      const __m128i codes = _mm_packus_epi16(_mm256_castsi256_si128(shifted), _mm256_extracti128_si256(shifted, 1));
      _mm_mask_storeu_epi8(static_cast<uint8_t*>(tile.y) + out, mask,
                           _mm_max_epu8(codes, _mm512_castsi512_si128(constants.low_bytes)));
    }
  }
}

/// Computes t, the values before rounding, of 32 channels: one row of a pair of vectors.
template <bool kResidual>
OCTET_ALWAYS_INLINE void rescale_pair(const GemmTile& tile, const EpilogueConstants& constants, int m, int n,
                                      __mmask32 mask, __m512i acc0, __m512i acc1, __m512 (&t)[2]) {
  t[0] = rescale16(acc0, tile.multiplier + n * kLanes, tile.bias + n * kLanes);
  t[1] = rescale16(acc1, tile.multiplier + (n + 1) * kLanes, tile.bias + (n + 1) * kLanes);
  if constexpr (kResidual) {
    add_residual_pair(_mm256_maskz_loadu_epi8(mask, tile.residual + m * tile.residual_stride + n * kLanes), constants,
                      t);
  }
}

/// Finishes vectors n and n + 1 to codes, two rows (2 x 32 codes) at a time.
template <bool kResidual, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish_pair(const GemmTile& tile, const EpilogueConstants& constants, int n,
                                     __m512i (&acc)[kRows][kWidth]) {
  const __mmask32 mask = lanes_mask(tile.channels - n * kLanes);
  const __m512i rows_apart = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
#pragma GCC unroll 7
  for (int m = 0; m < kRows; m += 2) {
    const int second = m + 1 < kRows ? m + 1 : m;
    __asm__ volatile("" : "+v"(acc[m][n]), "+v"(acc[m][n + 1]) : : "memory");
    __m512 t[2];
    rescale_pair<kResidual>(tile, constants, m, n, mask, acc[m][n], acc[m][n + 1], t);
    const __m512i words0 = round_words(t[0], t[1], constants);
    rescale_pair<kResidual>(tile, constants, second, n, mask, acc[second][n], acc[second][n + 1], t);
    const __m512i words1 = round_words(t[0], t[1], constants);
    const __m512i codes = _mm512_permutexvar_epi64(rows_apart, pack_codes(words0, words1, constants));
    uint8_t* to = static_cast<uint8_t*>(tile.y) + m * tile.y_stride + n * kLanes;
    _mm256_mask_storeu_epi8(to, mask, _mm512_castsi512_si256(codes));
    if (second != m) _mm256_mask_storeu_epi8(to + tile.y_stride, mask, _mm512_extracti64x4_epi64(codes, 1));
  }
}

/// Finishes a pair whose 32 channels exist and whose values fit into int32: no mask, and one clamp for 64 codes.
template <bool kResidual, int kRows>
OCTET_ALWAYS_INLINE void finish_full(const GemmTile& tile, const EpilogueConstants& constants,
                                     __m512i (&acc)[kRows][2]) {
  const __m512i rows_apart = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
#pragma GCC unroll 7
  for (int m = 0; m < kRows; m += 2) {
    __asm__ volatile("" : "+v"(acc[m][0]), "+v"(acc[m][1]) : : "memory");
    __m512i words[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int row = m + i < kRows ? m + i : m;
      __m512 t[2] = {rescale16(acc[row][0], tile.multiplier, tile.bias),
                     rescale16(acc[row][1], tile.multiplier + kLanes, tile.bias + kLanes)};
      if constexpr (kResidual) {
        const auto* residual = reinterpret_cast<const __m256i_u*>(tile.residual + row * tile.residual_stride);
        add_residual_pair(_mm256_loadu_si256(residual), constants, t);
      }
      words[i] = round_bounded(t[0], t[1], constants);
    }
    const __m512i codes = _mm512_permutexvar_epi64(rows_apart, pack_bounded(words[0], words[1], constants));
    uint8_t* to = static_cast<uint8_t*>(tile.y) + m * tile.y_stride;
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_castsi512_si256(codes));
    if (m + 1 == kRows) continue;
    // GCC would first extract the other half into a register, by the unit that packs.
    __asm__("vextracti64x4 $1, %1, %0" : "=m"(*reinterpret_cast<__m256i_u*>(to + tile.y_stride)) : "v"(codes));
  }
}

/// Finishes vectors n and n + 1 to float32 logits.
template <bool kResidual, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish_pair_logits(const GemmTile& tile, const EpilogueConstants& constants, int n,
                                            __m512i (&acc)[kRows][kWidth]) {
  const __mmask32 mask = lanes_mask(tile.channels - n * kLanes);
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
#pragma GCC unroll 14
  for (int m = 0; m < kRows; ++m) {
    __asm__ volatile("" : "+v"(acc[m][n]), "+v"(acc[m][n + 1]) : : "memory");
    __m512 t[2];
    rescale_pair<kResidual>(tile, constants, m, n, mask, acc[m][n], acc[m][n + 1], t);
    float* to = static_cast<float*>(tile.y) + m * tile.y_stride + n * kLanes;
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), _mm512_permutex2var_ps(t[0], first, t[1]));
    _mm512_mask_storeu_ps(to + kLanes, static_cast<__mmask16>(mask >> 16), _mm512_permutex2var_ps(t[0], second, t[1]));
  }
}

template <bool kResidual, bool kLogits, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish(const GemmTile& tile, const EpilogueConstants& constants,
                                __m512i (&acc)[kRows][kWidth]) {
#pragma GCC unroll 2
  for (int n = 0; n + 1 < kWidth; n += 2) {
    if constexpr (kLogits) {
      finish_pair_logits<kResidual>(tile, constants, n, acc);
    } else {
      finish_pair<kResidual>(tile, constants, n, acc);
    }
  }
  if constexpr (kWidth % 2 == 1) finish_single<kResidual, kLogits>(tile, constants, acc);
}

/// Finishes a tile as its epilogue says.
template <int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish_any(const GemmTile& tile, __m512i (&acc)[kRows][kWidth]) {
  const bool residual = tile.epilogue->has_residual, logits = tile.epilogue->float_output;
  const EpilogueConstants constants(*tile.epilogue);
  if constexpr (kWidth == 2) {
    if (!logits && tile.epilogue->fits_int32 && tile.channels == 2 * kLanes) {
      return residual ? finish_full<true>(tile, constants, acc) : finish_full<false>(tile, constants, acc);
    }
  }
  if (!logits) {
    residual ? finish<true, false>(tile, constants, acc) : finish<false, false>(tile, constants, acc);
  } else {
    residual ? finish<true, true>(tile, constants, acc) : finish<false, true>(tile, constants, acc);
  }
}

inline void copy64(const uint8_t* from, uint8_t* to) { _mm512_storeu_si512(to, _mm512_loadu_si512(from)); }

/// Gathers with 64-byte moves: most segments (a tap's channels, or a window row of them) take one load and one store. A
/// move may write up to 63 bytes too many; rows and segments are written in ascending order, so that the next ones
/// overwrite these bytes.
inline void gather(const GatherRun& run) {
  for (int pixel = 0; pixel < run.pixels; ++pixel) {
    uint8_t* to = run.to + pixel * run.to_step;
    const uint8_t* row = run.from + pixel * run.pixel_step;
    for (int r = 0; r < run.rows; ++r, row += run.row_step) {
      const uint8_t* from = row;
      for (int s = 0; s < run.segments; ++s, from += run.segment_step, to += run.segment_bytes) {
        copy64(from, to);
        for (int i = 64; i < run.segment_bytes; i += 64) copy64(from + i, to + i);
      }
    }
  }
}

/// Sets the order of channels in which finish() expects a pair of vectors.
inline void set_pair_order(GemmKernels& k) {
  for (int slot = 0; slot < 2 * kLanes; ++slot)
    k.pair_order[slot] = static_cast<uint8_t>(slot % kLanes / 4 * 8 + slot / kLanes * 4 + slot % 4);
}

/// Adds the products of all k.
template <bool kPrefetch, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void add_products(const GemmTile& tile, __m512i (&acc)[kRows][kWidth]) {
  // Each base pointer serves five rows, at 0 to 4 strides, so that few registers hold addresses.
  constexpr int kBases = (kRows + 4) / 5;
  const ptrdiff_t stride = tile.a_stride;
  const uint8_t* base[kBases];
#pragma GCC unroll 3
  for (int i = 0; i < kBases; ++i) base[i] = tile.a + 5 * i * stride;
  const int8_t *w = tile.w, *next_w = tile.next_w;
  for (int k = 0; k < tile.k_steps; ++k) {
    __m512i weight[kWidth];
#pragma GCC unroll 4
    for (int n = 0; n < kWidth; ++n) {
      weight[n] = _mm512_load_si512(w + n * 64);
      if constexpr (kPrefetch) _mm_prefetch(next_w + n * 64, _MM_HINT_T1);
    }
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) {
      int four;
      __builtin_memcpy(&four, base[m / 5] + (m % 5) * stride + 4 * static_cast<ptrdiff_t>(k), 4);
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int n = 0; n < kWidth; ++n) acc[m][n] = _mm512_dpbusd_epi32(acc[m][n], x, weight[n]);
    }
    w += kWidth * 64;
    if constexpr (kPrefetch) next_w += kWidth * 64;
  }
}

template <int kRows, int kWidth>
void gemm(const GemmTile& tile) {
  __m512i acc[kRows][kWidth];
#pragma GCC unroll 4
  for (int n = 0; n < kWidth; ++n) {
    const __m512i init = _mm512_load_si512(tile.init + n * kLanes);
#pragma GCC unroll 14
    for (int m = 0; m < kRows; ++m) acc[m][n] = init;
  }

  tile.next_w == nullptr ? add_products<false>(tile, acc) : add_products<true>(tile, acc);
  finish_any(tile, acc);
}

template <int kWidth, int kRows>
void fill_rows(GemmKernels& k) {
  k.kernel[kWidth - 1][kRows - 1] = gemm<kRows, kWidth>;
  if constexpr (kRows > 1) fill_rows<kWidth, kRows - 1>(k);
}

GemmKernels make_kernels() {
  GemmKernels k;
  k.isa = "avx512_vnni";
  k.k_group = 4;
  k.activation_bytes = 1;
  k.lanes = kLanes;
  k.width = 2;
  k.rows = 14;
  k.flat_width = 4;
  k.flat_rows = 6;
  k.gather = gather;
  set_pair_order(k);
  fill_rows<1, 14>(k);
  fill_rows<2, 14>(k);
  fill_rows<3, 6>(k);
  fill_rows<4, 6>(k);
  return k;
}

}  // namespace

const GemmKernels& avx512_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
