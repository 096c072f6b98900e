// Which taps of a window lie inside the image, of one axis.
#pragma once

#include <cstdint>

#include "kernels/fast_divide.h"

namespace octet::kernels {

/// Bit r of `kernel` (at most 15): place `first` + r * dilation is one of `size`. By two divisions, not tap by tap:
/// what a kernel does before it loads anything is time that a network of one image waits (kernels/NOTES.md).
OCTET_HOST_DEVICE inline uint32_t taps_inside(int first, int size, int kernel, const FastDivide& dilation) {
  // Taps before place `end`: end / dilation, rounded up.
  const auto before = [&](int end) {
    const int taps = dilation.divide((end > 0 ? end : 0) + static_cast<int>(dilation.divisor) - 1);
    return taps < kernel ? taps : kernel;
  };
  const uint32_t below_size = (1u << before(size - first)) - 1, below_zero = (1u << before(-first)) - 1;
  return below_size & ~below_zero;
}

}  // namespace octet::kernels
