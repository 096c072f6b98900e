// From the range of an edge to its scale and zero point.
#pragma once

#include "kernels/quantize.h"

namespace octet {

/// Scale and zero point of an edge from the range [lo, hi] of its values, widened to hold zero, which is always exactly
/// representable. Symmetric: scale = max(|lo|, |hi|) / quant_max (unsigned: hi / quant_max); affine: scale = (hi - lo)
/// / (quant_max - quant_min), zero_point = clamp(rint(quant_min - lo / scale)) (Jacob et al. 2018, eq. 3; rounding it
/// moves both ends by up to half a step). lo = hi = 0 is an edge of zeros (a dead layer), which every scale represents:
/// it gets that of [0, 1]. Throws Error(promise) for lo > hi or non-finite ends.
QParams choose_qparams(double lo, double hi, const QParams& range, bool affine);

}  // namespace octet
