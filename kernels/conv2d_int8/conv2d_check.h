// What every implementation asks of a convolution before it packs or runs it; each adds its own limits.
#pragma once

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet::kernels {

/// Throws Error(promise) "<who> convolution: <what>" unless `ok`. who: "cpu", "cuda".
void require_conv2d(bool ok, const char* who, const char* what);

/// The contract of conv2d_int8.h: sizes, window, groups, strides, parameters that are there. Throws as above.
void check_conv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, const char* who);

}  // namespace octet::kernels
