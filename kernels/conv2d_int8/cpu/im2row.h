// Gathers the input codes under output pixels into rows that a matrix product can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {

/// Writes rows [R][S][tap_bytes] of output pixels, zero points where the padding is. A code takes
/// GemmKernels::activation_bytes.
class Im2Row {
 public:
  Im2Row(const Conv2dShape& shape, int x_zero_point, int tap_bytes, const GemmKernels& kernels);

  /// Rows first_row, first_row + 1, ... of a batch (row = output pixel), row_bytes apart. x: the batch at the first
  /// channel wanted. Up to kCpuReadSlack codes are read and written behind the last.
  void gather(const uint8_t* x, int first_row, int rows, uint8_t* to, ptrdiff_t row_bytes) const;

 private:
  struct Span {
    int first = 0, last = 0;  // taps of a window that lie inside the image: [first, last)
  };
  static Span inside(int position, int kernel, int dilation, int size);
  void gather_inner(const uint8_t* image, int oy, int ox, int pixels, uint8_t* to, ptrdiff_t row_bytes) const;
  void gather_pixel(const uint8_t* image, int oy, int ox, uint8_t* to) const;
  uint8_t* fill(uint8_t* to, int taps) const;
  uint8_t* copy(uint8_t* to, const uint8_t* from, int codes) const;

  Conv2dShape g_;
  int x_zero_point_, tap_bytes_;
  bool wide_;
  void (*gather_run_)(const GatherRun&);
  std::vector<Span> rows_, columns_;      // of each oy and ox
  int inner_first_ = 0, inner_last_ = 0;  // ox whose window lies within the image's width
};

}  // namespace octet::kernels
