// SPDX-License-Identifier: Apache-2.0
// How kernels read and write codes: bytes, int8 or uint8, with a zero point. `edge` stands for a tensor of codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/quantize.h"

namespace octet::kernels {

/// A tensor of codes that a kernel reads.
struct CodeInput {
  int32_t zero_point = 0;
  bool is_signed = false;
};

/// A tensor that a kernel writes: y = clamp(rint(t) + zero_point, clamp_min, clamp_max), or t itself as float32.
struct CodeOutput {
  int32_t zero_point = 0, clamp_min = 0, clamp_max = 255;
  bool is_signed = false;
  bool float_output = false;
};

/// A thread's share of a loop: [begin, end).
struct Range {
  int begin = 0, end = 0;
};

/// Returns the code at `index` of a tensor of Code (int8_t or uint8_t) minus the zero point.
template <typename Code>
inline int32_t centred_code(const void* data, ptrdiff_t index, int32_t zero_point) {
  return static_cast<int32_t>(static_cast<const Code*>(data)[index]) - zero_point;
}

/// Returns the code at `index` of `data` minus the edge's zero point.
inline int32_t centred_code(const void* data, ptrdiff_t index, const CodeInput& edge) {
  return edge.is_signed ? centred_code<int8_t>(data, index, edge.zero_point)
                        : centred_code<uint8_t>(data, index, edge.zero_point);
}

/// Writes t to element `index` of y: as a code, or with float_output as float32. This is the definition of how a node
/// ends.
inline void store_result(float t, const CodeOutput& out, void* y, ptrdiff_t index) {
  if (out.float_output) {
    static_cast<float*>(y)[index] = t;
  } else {
    // int8 and uint8 of one code are the same byte modulo 256.
    static_cast<uint8_t*>(y)[index] = static_cast<uint8_t>(round_code(t, out.zero_point, out.clamp_min, out.clamp_max));
  }
}

/// round_code() in a form that compilers vectorize. The clamp goes before the rounding: its bounds are integers and
/// rounding is monotone, so the code is the same. Adding 1.5 * 2^23 rounds half to even, as rint does.
struct FastRounding {
  float low, high;  ///< bounds of t: the clamp's bounds minus the zero point
  int32_t offset;   ///< removes the added constant and adds the zero point

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

/// Writes `count` elements of y from index `at` on, where value(i) returns t of the i-th, in a loop that vectorizes.
/// `round` is FastRounding(out).
template <typename Value>
[[gnu::always_inline]] inline void store_results(const CodeOutput& out, const FastRounding& round, ptrdiff_t count,
                                                 const Value& value, void* y, ptrdiff_t at) {
  if (out.float_output) {
    float* __restrict reals = static_cast<float*>(y) + at;
    for (ptrdiff_t i = 0; i < count; ++i) reals[i] = value(i);
  } else {
    uint8_t* __restrict codes = static_cast<uint8_t*>(y) + at;
    for (ptrdiff_t i = 0; i < count; ++i) codes[i] = round(value(i));
  }
}

}  // namespace octet::kernels
