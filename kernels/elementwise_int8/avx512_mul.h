// Products of codes in AVX-512 registers, for cpu_elementwise_int8.cpp. Plain data only, as
// kernels/conv2d_int8/cpu/gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {

/// y[i] = the code of float((x[i] - x_zero) * (b[i] - b_zero)) * multiplier; uint8 throughout. b moves on by `b_step`
/// for every 64 codes: 64, or 0 for the same 64 factors again and again.
struct MulRun {
  const uint8_t* x = nullptr;
  const uint8_t* b = nullptr;
  ptrdiff_t b_step = 64;
  ptrdiff_t count = 0;
  uint8_t* y = nullptr;
  int32_t x_zero = 0, b_zero = 0;
  float multiplier = 0;
  Epilogue epilogue;
};
void avx512_mul(const MulRun& run);

}  // namespace octet::kernels
