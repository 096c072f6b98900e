// dpbusd multiplies unsigned codes of a with signed ones of b, b - 128, four terms at a time. The zero points come in
// behind the sums: with b' = b - 128 and its zero point z',
//   sum (a - za) (b' - z') = sum a b' - za * sum b' - z' * sum a + terms * za * z',
// all modulo 2^32, which the result does not leave.
#include "kernels/matmul_int8/avx512_matmul.h"

#include <immintrin.h>

#include <cstring>

namespace octet::kernels {
namespace {

constexpr int kRows = 8;   ///< at once, so that a load of b serves so many sums
constexpr int kTerms = 4;  ///< of a lane

/// Four terms of each column side by side, less 128; 0 where there are none.
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

/// Fills the panel; what a's zero point adds to each column.
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
      const int row = first + r < run.rows ? first + r : run.rows - 1;  // behind the last: sums that nobody stores
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

}  // namespace octet::kernels
