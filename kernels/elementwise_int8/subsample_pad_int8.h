// The parameter-free shortcut (option A of He et al., "Deep Residual Learning", 2015): every stride-th pixel, new
// channels of real 0 on both sides. Codes are copied, so one version serves int8, uint8 and every machine.
#pragma once

#include <cstdint>

namespace octet::kernels {

struct SubsamplePadShape {
  int in_c = 0, in_w = 0, in_stride = 0;  ///< channels, width, bytes between neighbouring pixels
  int out_c = 0, out_h = 0, out_w = 0, out_stride = 0;
  int stride_h = 1, stride_w = 1;
};

struct SubsamplePadParams {
  uint8_t zero_code = 0;  ///< the stored byte of real 0
};

/// One image. The first of the (out_c - in_c) new channels, rounded down to half, stand before the copied ones.
void subsample_pad_int8(const SubsamplePadShape& shape, const SubsamplePadParams& params, const uint8_t* x, uint8_t* y);

}  // namespace octet::kernels
