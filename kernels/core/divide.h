// SPDX-License-Identifier: Apache-2.0
// Divisions of integers.
#pragma once

#include <cstdint>

#include "kernels/core/quantize.h"

namespace octet::kernels {

/// Returns a / b, rounded up; neither is negative.
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Returns the smallest multiple of `multiple` that is at least n; n is not negative.
constexpr int round_up(int n, int multiple) { return ceil_div(n, multiple) * multiple; }

/// A divisor that the host knows and the device divides by often: there an integer division takes some twenty
/// instructions. With p = 31 + ceil(log2 divisor) and m = ceil(2^p / divisor), floor(n m / 2^p) is exact for
/// 0 <= n < 2^31 (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
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
  /// Returns n / divisor.
  OCTET_HOST_DEVICE int divide(int n) const {
    const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier) >> 32);
    return divisor == 1 ? n : static_cast<int>(high >> shift);
  }
};

}  // namespace octet::kernels
