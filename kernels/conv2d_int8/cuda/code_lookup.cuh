// A look-up that a convolution does on the codes it is about to write. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda_conv2d.h"

namespace octet::kernels {

/// table[code] in place of each code. The table's two cache lines stay in L1; copies in shared memory, one a bank, so
/// that no lane waits for another, took longer (kernels/NOTES.md).
struct CodeLookup {
  const uint8_t* table;  ///< [256] on the device, which no kernel writes; null: codes stay as they are

  explicit CodeLookup(const CudaConv2dData& data) : table(data.lookup) {}

#if defined(__CUDACC__)
  __device__ __forceinline__ bool wanted() const { return table != nullptr; }
  __device__ __forceinline__ uint32_t code(uint32_t byte) const { return __ldg(table + byte); }
  /// Of four codes.
  __device__ __forceinline__ uint32_t word(uint32_t codes) const {
    const uint32_t low = __byte_perm(code(codes & 255), code(codes >> 8 & 255), 0x0040);
    const uint32_t high = __byte_perm(code(codes >> 16 & 255), code(codes >> 24), 0x0040);
    return __byte_perm(low, high, 0x5410);
  }
#endif
};

}  // namespace octet::kernels
