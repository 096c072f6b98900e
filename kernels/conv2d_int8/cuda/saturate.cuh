// Four sums to four bytes in two instructions.
#pragma once

#include <cstdint>

namespace octet::kernels {

#if defined(__CUDACC__)
/// Each clamped to a byte, the first lowest.
__device__ __forceinline__ uint32_t saturate_to_bytes(int32_t a, int32_t b, int32_t c, int32_t d) {
  uint32_t word;
  asm("{\n"
      ".reg .b32 high;\n"
      "cvt.pack.sat.u8.s32.b32 high, %4, %3, 0;\n"
      "cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;\n"
      "}"
      : "=r"(word)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  return word;
}
#endif

}  // namespace octet::kernels
