// Division by a number that the host knows and the device uses often: integer division is some twenty instructions
// there.
#pragma once

#include <cstdint>

#include "kernels/quantize.h"

namespace octet::kernels {

/// n / divisor for 0 <= n < 2^31 by one multiplication: with p = 31 + ceil(log2 divisor) and m = ceil(2^p / divisor),
/// floor(n m / 2^p) is exact (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
struct FastDivide {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d) {
    if (d == 1) return;
    uint32_t log = 0;
    while ((uint64_t{1} << log) < d) ++log;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + log)) + d - 1) / d);
    shift = log - 1;
  }
  OCTET_HOST_DEVICE int divide(int n) const {
    const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier) >> 32);
    return divisor == 1 ? n : static_cast<int>(high >> shift);
  }
};

}  // namespace octet::kernels
