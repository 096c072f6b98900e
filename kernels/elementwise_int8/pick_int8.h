// Some channels of every pixel (slice), or every pixel several times (resize to the nearest). Codes are copied, so one
// version serves int8, uint8 and every machine.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

struct PickShape {
  int in_w = 0, in_stride = 0;          ///< width, bytes between neighbouring pixels
  int first_channel = 0, channels = 0;  ///< those of x that y has
  int out_h = 0, out_w = 0, out_stride = 0;
  int factor_h = 1, factor_w = 1;  ///< how often a row and a column of x are in y
};

/// The rows of one image: y[row, column, c] = x[row / factor_h, column / factor_w, first_channel + c].
void pick_int8(const PickShape& shape, Range rows, const uint8_t* x, uint8_t* y);

}  // namespace octet::kernels
