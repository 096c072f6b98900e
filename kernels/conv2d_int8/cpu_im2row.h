// Gathers the input codes under output pixels into rows that a matrix product can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet::kernels {

/// Writes rows [R][S][tap_bytes] of output pixels, zero points where the padding is. A code takes 1 byte, or 2 (int16)
/// when wide.
class Im2Row {
 public:
  Im2Row(const Conv2dShape& shape, int x_zero_point, int tap_bytes, bool wide);

  /// Rows first_row, first_row + 1, ... of a batch (row = output pixel), row_bytes apart. x: the batch at the first
  /// channel wanted. Up to 15 codes are read behind the last wanted (kCpuReadSlack) and as many written.
  void gather(const uint8_t* x, int first_row, int rows, uint8_t* to, ptrdiff_t row_bytes) const;

 private:
  struct Span {
    int first = 0, last = 0;  // taps of a window that lie inside the image: [first, last)
  };
  static Span inside(int position, int kernel, int dilation, int size);
  void gather_pixel(const uint8_t* image, int oy, int ox, uint8_t* to) const;
  uint8_t* fill(uint8_t* to, int taps) const;
  uint8_t* copy(uint8_t* to, const uint8_t* from, int codes) const;

  Conv2dShape g_;
  int x_zero_point_, tap_bytes_;
  bool wide_;
  std::vector<Span> rows_, columns_;  // of each oy and ox
};

}  // namespace octet::kernels
