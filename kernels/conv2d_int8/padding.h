// How far windows reach behind an image. Conv2dShape has the padding before the first row and column; what lies behind
// the last follows from the output's size, so that no kernel has to know whether both are alike.
#pragma once

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet::kernels {

inline int pad_behind(int in, int out, int kernel, int stride, int pad, int dilation) {
  return (out - 1) * stride + dilation * (kernel - 1) + 1 - in - pad;
}

/// Rows below the image that the last window reaches; negative where it leaves rows out.
inline int pad_bottom(const Conv2dShape& g) {
  return pad_behind(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h);
}
/// The same for columns.
inline int pad_right(const Conv2dShape& g) {
  return pad_behind(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w);
}

}  // namespace octet::kernels
