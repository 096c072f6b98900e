#include "kernels/elementwise_int8/lookup_int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octet::kernels {

void lookup_int8_reference(const LookupTable& table, const uint8_t* x, long count, uint8_t* y) {
  for (long i = 0; i < count; ++i) y[i] = table.byte[x[i]];
}

#if defined(__x86_64__)
namespace {

/// 64 look-ups at once: one permutation finds a byte among the lower 128 entries, one among the upper; the index's top
/// bit decides.
[[gnu::target("avx512f,avx512bw,avx512vbmi")]] void lookup_vbmi(const LookupTable& table, const uint8_t* x, long count,
                                                                uint8_t* y) {
  const __m512i t0 = _mm512_loadu_si512(table.byte), t1 = _mm512_loadu_si512(table.byte + 64);
  const __m512i t2 = _mm512_loadu_si512(table.byte + 128), t3 = _mm512_loadu_si512(table.byte + 192);
  for (long i = 0; i < count; i += 64) {
    const __mmask64 lanes = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    const __m512i at = _mm512_maskz_loadu_epi8(lanes, x + i);
    const __m512i lower = _mm512_permutex2var_epi8(t0, at, t1), upper = _mm512_permutex2var_epi8(t2, at, t3);
    _mm512_mask_storeu_epi8(y + i, lanes, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), lower, upper));
  }
}

}  // namespace
#endif

void cpu_lookup_u8(CpuIsa isa, const LookupTable& table, const uint8_t* x, long count, uint8_t* y) {
#if defined(__x86_64__)
  if (isa == CpuIsa::avx512_vnni && __builtin_cpu_supports("avx512vbmi")) return lookup_vbmi(table, x, count, y);
#endif
  lookup_int8_reference(table, x, count, y);
}

}  // namespace octet::kernels
