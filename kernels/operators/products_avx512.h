// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI paths of mul, matmul and look-ups, for elementwise_cpu.cpp and attention_cpu.cpp. Plain data only,
// as in kernels/conv/cpu/micro_kernels.h: files for one instruction set share no inline code with others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {

/// Computes y[i] = the code of float((x[i] - x_zero) * (b[i] - b_zero)) * multiplier; all codes are uint8.
struct MulRun {
  const uint8_t* x = nullptr;
  const uint8_t* b = nullptr;
  ptrdiff_t b_step = 64;  ///< how far b advances for each 64 codes of x: 64, or 0 to reuse the same 64 factors
  ptrdiff_t count = 0;
  uint8_t* y = nullptr;
  int32_t x_zero = 0, b_zero = 0;
  float multiplier = 0;
  Epilogue epilogue;
};
void avx512_mul(const MulRun& run);

inline constexpr int kMatmulColumns = 16;  ///< the most columns of a MatmulRun

/// Writes the sum of each row of a to sums[row]; avx512_matmul() multiplies them by b's zero point minus 128.
void avx512_row_sums(const uint8_t* a, ptrdiff_t a_stride, int rows, int terms, int32_t* sums);

/// Computes up to kMatmulColumns neighbouring columns of one head's product, for all rows.
struct MatmulRun {
  const uint8_t* a = nullptr;         ///< [rows, terms]; up to 3 bytes behind a row's terms are read
  const uint8_t* b = nullptr;         ///< [terms, columns], or transposed [columns, terms]
  const int32_t* row_sums = nullptr;  ///< [rows]
  void* y = nullptr;                  ///< [rows, columns], codes or floats
  int8_t* panel = nullptr;  ///< scratch [terms rounded up to a multiple of 4, kMatmulColumns], aligned to 64 bytes
  ptrdiff_t a_stride = 0, b_stride = 0, y_stride = 0;
  int rows = 0, terms = 0, columns = 0;
  bool transposed = false, float_output = false;
  int32_t a_zero = 0, b_zero = 0, y_zero = 0;
  float multiplier = 0;
  float low = 0, high = 0;  ///< bounds of t: the clamp's bounds minus y's zero point
};
void avx512_matmul(const MatmulRun& run);

/// Writes table[x] for `count` bytes; table: [256]. For processors with VBMI.
void avx512_lookup(const uint8_t* table, const uint8_t* x, long count, uint8_t* y);

}  // namespace octet::kernels
