// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/products_avx512.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/conv/cpu/avx512_epilogue.h"

namespace octet::kernels {

// mul. Differences of codes fit 16 bits and their products 17: interleaving the low and high halves of the 16-bit
// products gives 32-bit ones. Unpacks and packs stay within 128-bit lanes, so one permutation restores the order of the
// codes. That is about 40 instructions for 64 codes, half of what a loop over 32-bit lanes needs.

namespace {

/// Returns rint(x * b * multiplier) plus the zero point of 32 codes, as words.
OCTET_ALWAYS_INLINE __m512i words_of(__m512i x, __m512i b, __m512 multiplier, const EpilogueConstants& constants) {
  const __m512i low = _mm512_mullo_epi16(x, b), high = _mm512_mulhi_epi16(x, b);
  const __m512 t0 = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_unpacklo_epi16(low, high)), multiplier);
  const __m512 t1 = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_unpackhi_epi16(low, high)), multiplier);
  return round_words(t0, t1, constants);
}

OCTET_ALWAYS_INLINE __m512i centred(__m256i codes, __m512i zero) {
  return _mm512_sub_epi16(_mm512_cvtepu8_epi16(codes), zero);
}

}  // namespace

void avx512_mul(const MulRun& run) {
  const EpilogueConstants constants(run.epilogue);
  const __m512i x_zero = _mm512_set1_epi16(static_cast<int16_t>(run.x_zero));
  const __m512i b_zero = _mm512_set1_epi16(static_cast<int16_t>(run.b_zero));
  const __m512 multiplier = _mm512_set1_ps(run.multiplier);
  const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const uint8_t* b = run.b;
  for (ptrdiff_t i = 0; i < run.count; i += 64, b += run.b_step) {
    const __mmask64 lanes = run.count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (run.count - i)) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(lanes, run.x + i), f = _mm512_maskz_loadu_epi8(lanes, b);
    const __m512i words0 = words_of(centred(_mm512_castsi512_si256(x), x_zero),
                                    centred(_mm512_castsi512_si256(f), b_zero), multiplier, constants);
    const __m512i words1 = words_of(centred(_mm512_extracti64x4_epi64(x, 1), x_zero),
                                    centred(_mm512_extracti64x4_epi64(f, 1), b_zero), multiplier, constants);
    const __m512i codes = _mm512_permutexvar_epi64(in_order, pack_codes(words0, words1, constants));
    _mm512_mask_storeu_epi8(run.y + i, lanes, codes);
  }
}

// matmul. dpbusd multiplies unsigned codes of a by signed ones, b' = b - 128, four terms at a time. The zero points (z'
// is that of b') are applied to the sums:
//   sum (a - za) (b' - z') = sum a b' - za * sum b' - z' * sum a + terms * za * z',
// all modulo 2^32; the result is exact, since it lies in int32.

namespace {

constexpr int kRows = 8;   ///< rows computed together: each load of b serves this many sums
constexpr int kTerms = 4;  ///< terms in one 32-bit lane

/// Returns four neighbouring terms of each column, minus 128; missing terms are 0.
__m512i packed_terms(const MatmulRun& run, int first) {
  const int terms = run.terms - first < kTerms ? run.terms - first : kTerms;
  __m512i codes = _mm512_set1_epi8(static_cast<char>(0x80));
  if (run.transposed) {
    alignas(64) uint8_t lanes[kMatmulColumns * kTerms];
    _mm512_store_si512(lanes, codes);
    const uint8_t* from = run.b + first;
    for (int c = 0; c < run.columns; ++c, from += run.b_stride)
      std::memcpy(lanes + c * kTerms, from, static_cast<size_t>(terms));
    codes = _mm512_load_si512(lanes);
  } else {
    const auto mask = static_cast<__mmask16>((1u << run.columns) - 1);
    __m128i row[kTerms];
    for (int t = 0; t < kTerms; ++t) {
      const __m128i none = _mm512_castsi512_si128(codes);
      row[t] = t < terms ? _mm_mask_loadu_epi8(none, mask, run.b + (first + t) * run.b_stride) : none;
    }
    const __m128i low01 = _mm_unpacklo_epi8(row[0], row[1]), high01 = _mm_unpackhi_epi8(row[0], row[1]);
    const __m128i low23 = _mm_unpacklo_epi8(row[2], row[3]), high23 = _mm_unpackhi_epi8(row[2], row[3]);
    codes = _mm512_castsi128_si512(_mm_unpacklo_epi16(low01, low23));
    codes = _mm512_inserti32x4(codes, _mm_unpackhi_epi16(low01, low23), 1);
    codes = _mm512_inserti32x4(codes, _mm_unpacklo_epi16(high01, high23), 2);
    codes = _mm512_inserti32x4(codes, _mm_unpackhi_epi16(high01, high23), 3);
  }
  return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
}

/// Fills the panel with b and returns what a's zero point adds to each column's sum.
__m512i pack(const MatmulRun& run) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_setzero_si512();
  int8_t* to = run.panel;
  for (int term = 0; term < run.terms; term += kTerms, to += sizeof(__m512i)) {
    const __m512i codes = packed_terms(run, term);
    _mm512_store_si512(to, codes);
    sums = _mm512_dpbusd_epi32(sums, ones, codes);
  }
  const __m512i zeros = _mm512_set1_epi32(run.terms * (run.b_zero - 128));
  return _mm512_mullo_epi32(_mm512_sub_epi32(zeros, sums), _mm512_set1_epi32(run.a_zero));
}

/// Ends the first run.columns columns of a row, at element `at` of y.
void store(const MatmulRun& run, __m512i sums, ptrdiff_t at) {
  const auto mask = static_cast<__mmask16>((1u << run.columns) - 1);
  const __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(run.multiplier));
  if (run.float_output) return _mm512_mask_storeu_ps(static_cast<float*>(run.y) + at, mask, t);
  const __m512 bounded = _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(run.low)), _mm512_set1_ps(run.high));
  const __m512i codes = _mm512_add_epi32(_mm512_cvtps_epi32(bounded), _mm512_set1_epi32(run.y_zero));
  _mm512_mask_cvtepi32_storeu_epi8(static_cast<uint8_t*>(run.y) + at, mask, codes);
}

int32_t four_codes(const uint8_t* from) {
  int32_t codes;
  std::memcpy(&codes, from, sizeof(codes));
  return codes;
}

}  // namespace

void avx512_row_sums(const uint8_t* a, ptrdiff_t a_stride, int rows, int terms, int32_t* sums) {
  for (int row = 0; row < rows; ++row) {
    const uint8_t* from = a + row * a_stride;
    int32_t sum = 0;
    for (int term = 0; term < terms; ++term) sum += from[term];
    sums[row] = sum;
  }
}

void avx512_matmul(const MatmulRun& run) {
  const __m512i columns = pack(run);
  for (int first = 0; first < run.rows; first += kRows) {
    const uint8_t* a[kRows];
    __m512i sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int row = first + r < run.rows ? first + r : run.rows - 1;  // past the last row: its sums are not stored
      a[r] = run.a + row * run.a_stride;
      sums[r] = _mm512_sub_epi32(columns, _mm512_set1_epi32(run.row_sums[row] * (run.b_zero - 128)));
    }
    const int8_t* panel = run.panel;
    for (int term = 0; term < run.terms; term += kTerms, panel += sizeof(__m512i)) {
      const __m512i b = _mm512_load_si512(panel);
      for (int r = 0; r < kRows; ++r)
        sums[r] = _mm512_dpbusd_epi32(sums[r], _mm512_set1_epi32(four_codes(a[r] + term)), b);
    }
    for (int r = 0; r < kRows && first + r < run.rows; ++r) store(run, sums[r], (first + r) * run.y_stride);
  }
}

// Look-ups of 64 bytes at a time: one permutation takes bytes from the lower 128 entries, one from the upper 128, and
// the top bit of the index selects.
[[gnu::target("avx512vbmi")]] void avx512_lookup(const uint8_t* table, const uint8_t* x, long count, uint8_t* y) {
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
  const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  for (long i = 0; i < count; i += 64) {
    const __mmask64 lanes = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    const __m512i at = _mm512_maskz_loadu_epi8(lanes, x + i);
    const __m512i lower = _mm512_permutex2var_epi8(t0, at, t1), upper = _mm512_permutex2var_epi8(t2, at, t3);
    _mm512_mask_storeu_epi8(y + i, lanes, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), lower, upper));
  }
}

}  // namespace octet::kernels
