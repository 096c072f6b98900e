// Some channels of every pixel (slice), or all in another order (channel_shuffle), every pixel several times (resize to
// the nearest), or several pixels of one (depth_to_space). Codes are copied, so one version serves int8, uint8 and
// every machine.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

struct PickShape {
  int in_w = 0, in_stride = 0;          ///< width, bytes between neighbouring pixels
  int first_channel = 0, channels = 0;  ///< those of x that y has
  int out_h = 0, out_w = 0, out_stride = 0;
  int factor_h = 1, factor_w = 1;  ///< how often a row and a column of x are in y
  int part =
      0;  ///< channels by which each of the factor_h x factor_w copies starts further on: `channels`, or 0: alike
  int groups = 1;  ///< of channels, which take turns
};

/// The rows of one image: y[row, column, c] = x[row / factor_h, column / factor_w, first + c] with
///   first = first_channel + part * (row % factor_h * factor_w + column % factor_w);
/// for more than one group c % groups * (channels / groups) + c / groups in c's place.
void pick_int8(const PickShape& shape, Range rows, const uint8_t* x, uint8_t* y);

}  // namespace octet::kernels
