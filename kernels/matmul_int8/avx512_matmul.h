// The path of avx512_vnni: plain data, so that its file shares no inline code with others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::kernels {

inline constexpr int kMatmulColumns = 16;  ///< of a run

/// The sums of each row of a, which a zero point of b other than 128 multiplies: sums[row].
void avx512_row_sums(const uint8_t* a, ptrdiff_t a_stride, int rows, int terms, int32_t* sums);

/// At most kMatmulColumns neighbouring columns of a head's product, for all rows.
struct MatmulRun {
  const uint8_t* a = nullptr;         ///< [rows, terms]; up to 3 bytes behind a row's terms are read
  const uint8_t* b = nullptr;         ///< [terms, columns], or transposed [columns, terms]
  const int32_t* row_sums = nullptr;  ///< [rows]
  void* y = nullptr;                  ///< [rows, columns], codes or floats
  int8_t* panel = nullptr;            ///< scratch, kMatmulColumns bytes for each of the terms, which are rounded up to
                                      ///< a multiple of four; aligned to 64 bytes
  ptrdiff_t a_stride = 0, b_stride = 0, y_stride = 0;
  int rows = 0, terms = 0, columns = 0;
  bool transposed = false, float_output = false;
  int32_t a_zero = 0, b_zero = 0, y_zero = 0;
  float multiplier = 0, low = 0, high = 0;  ///< bounds of t, less y's zero point
};
void avx512_matmul(const MatmulRun& run);

}  // namespace octet::kernels
