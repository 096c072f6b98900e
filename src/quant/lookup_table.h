// The table that a lookup becomes: made once, in double, from its function and the qparams of the edges on both sides.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/quantize.h"
#include "src/graph/function.h"

namespace octet {

/// Bounds of the codes that a node writes.
struct CodeBounds {
  int32_t lo = 0, hi = 255;
};

/// [256]: by the stored byte of the input's code the stored byte of clamp(quantize(float(f(dequantize(code))))). All
/// 256 bytes are codes here, also those outside the input's range.
std::vector<uint8_t> lookup_table(const Curve& curve, const QParams& x, const QParams& y, const CodeBounds& bounds);

}  // namespace octet
