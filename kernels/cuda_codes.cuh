// How device code reads, rounds and packs codes: the host's definitions are in kernels/codes.h and quantize.h. Include
// it in .cu files only.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// FastRounding on the device: round_code() in five instructions. NaN becomes clamp_min, as the rule asks.
struct CudaRounding : FastRounding {
  using FastRounding::FastRounding;

#if defined(__CUDACC__)
  __device__ int32_t operator()(float t) const {
    return __float_as_int(fminf(fmaxf(t, low), high) + kRoundingConstant) + offset;
  }
#endif
};

#if defined(__CUDACC__)

__device__ inline int32_t load_code(const void* codes, ptrdiff_t index, bool is_signed) {
  return is_signed ? static_cast<const int8_t*>(codes)[index] : static_cast<const uint8_t*>(codes)[index];
}

/// The low bytes of four codes, the first lowest.
__device__ inline uint32_t pack_codes(int32_t a, int32_t b, int32_t c, int32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

/// acc + four products of codes (int8 or uint8) and int8 weights, exact.
template <bool kSigned>
__device__ int32_t dot4(uint32_t codes, uint32_t weights, int32_t acc) {
  if constexpr (kSigned) {
    return __dp4a(static_cast<int32_t>(codes), static_cast<int32_t>(weights), acc);
  } else {
    int32_t sum;  // no intrinsic takes unsigned by signed
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(codes), "r"(weights), "r"(acc));
    return sum;
  }
}

#endif

}  // namespace octet::kernels
