// How kernels read and write the codes of an edge: one byte, int8 or uint8, with a zero point.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantize.h"

namespace octet::kernels {

/// An edge that a kernel reads.
struct CodeInput {
  int32_t zero_point = 0;
  bool is_signed = false;
};

/// An edge that a kernel writes: y = clamp(rint(t) + zero_point, clamp_min, clamp_max), or t itself as float32.
struct CodeOutput {
  int32_t zero_point = 0, clamp_min = 0, clamp_max = 255;
  bool is_signed = false;
  bool float_output = false;
};

/// A range of a loop that threads share: [begin, end).
struct Range {
  int begin = 0, end = 0;
};

/// The code at `index` of a tensor of Code (int8_t or uint8_t), without its zero point.
template <typename Code>
inline int32_t centred_code(const void* data, ptrdiff_t index, int32_t zero_point) {
  return static_cast<int32_t>(static_cast<const Code*>(data)[index]) - zero_point;
}

/// Ends a node: writes t to element `index` of y (bytes, or float32 with float_output). The definition.
inline void store_result(float t, const CodeOutput& out, void* y, ptrdiff_t index) {
  if (out.float_output) {
    static_cast<float*>(y)[index] = t;
  } else {
    // int8 and uint8 of one code are the same byte modulo 256.
    static_cast<uint8_t*>(y)[index] = static_cast<uint8_t>(round_code(t, out.zero_point, out.clamp_min, out.clamp_max));
  }
}

/// round_code() for loops that a compiler turns into vector code: the clamp goes before the rounding (its bounds are
/// integers and rounding is monotone, so the code is the same), and adding 1.5 * 2^23 rounds half to even, as rint.
struct FastRounding {
  float low, high;  ///< of t: clamp bounds less the zero point
  int32_t offset;   ///< undoes the added constant and adds the zero point

  static constexpr float kRoundingConstant = 12582912.0f;
  static constexpr int32_t kRoundingConstantBits = 0x4B400000;

  explicit FastRounding(const CodeOutput& out)
      : low(static_cast<float>(out.clamp_min - out.zero_point)),
        high(static_cast<float>(out.clamp_max - out.zero_point)),
        offset(out.zero_point - kRoundingConstantBits) {}

  [[gnu::always_inline]] inline uint8_t operator()(float t) const {
    t = t < low ? low : t;
    t = t > high ? high : t;
    return static_cast<uint8_t>(__builtin_bit_cast(int32_t, t + kRoundingConstant) + offset);
  }
};

}  // namespace octet::kernels
