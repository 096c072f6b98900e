#pragma once

namespace octet::kernels {

/// a / b, rounded up; neither is negative.
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace octet::kernels
