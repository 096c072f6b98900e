// Differences of codes fit 16 bits and their products 17: the low and high halves of 16-bit products, side by side, are
// 32-bit ones. Unpacks and packs work within the same 128-bit lanes, so the codes come back in order but for one
// permutation. About 40 instructions for 64 codes, where a loop over 32-bit lanes has twice as many.
#include "kernels/elementwise_int8/avx512_mul.h"

#include <immintrin.h>

#include "kernels/conv2d_int8/cpu/avx512_epilogue.h"

namespace octet::kernels {
namespace {

/// rint(products * multiplier) plus the zero point, of 32 codes, as words.
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

}  // namespace octet::kernels
