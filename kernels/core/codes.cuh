// SPDX-License-Identifier: Apache-2.0
// How device code reads, computes, rounds and writes codes; the host's definitions are in kernels/core/codes.h and
// quantize.h. Include it in .cu files only.
#pragma once

#include <climits>
#include <initializer_list>
#include <string>

#include "kernels/core/codes.h"
#include "src/base/error.h"

namespace octet::kernels {

/// FastRounding on the device: round_code() in five instructions. NaN becomes clamp_min, as the rule requires.
struct CudaRounding : FastRounding {
  using FastRounding::FastRounding;

  __device__ int32_t operator()(float t) const {
    return __float_as_int(fminf(fmaxf(t, low), high) + kRoundingConstant) + offset;
  }
};

/// Writes t to element `index` of y: as a code, or with float_output as float32.
__device__ inline void store_result(float t, const CudaRounding& rounding, bool float_output, void* y,
                                    ptrdiff_t index) {
  if (float_output) {
    static_cast<float*>(y)[index] = t;
  } else {
    static_cast<uint8_t*>(y)[index] = static_cast<uint8_t>(rounding(t));
  }
}

/// Returns the code at `index` of a tensor of int8 or uint8.
__device__ inline int32_t load_code(const void* codes, ptrdiff_t index, bool is_signed) {
  return is_signed ? static_cast<const int8_t*>(codes)[index] : static_cast<const uint8_t*>(codes)[index];
}

/// Returns the low bytes of four codes in one word, `a` lowest.
__device__ inline uint32_t pack_codes(int32_t a, int32_t b, int32_t c, int32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

/// Returns acc plus four products of codes (int8 with kSigned, else uint8) and int8 weights, exactly.
template <bool kSigned>
__device__ int32_t dot4(uint32_t codes, uint32_t weights, int32_t acc) {
  if constexpr (kSigned) {
    return __dp4a(static_cast<int32_t>(codes), static_cast<int32_t>(weights), acc);
  } else {
    int32_t sum;  // no intrinsic multiplies unsigned by signed
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(codes), "r"(weights), "r"(acc));
    return sum;
  }
}

/// kCodes = 16, 4 or 1 neighbouring codes in the registers of one thread.
template <int kCodes>
struct CodeVector {
  static constexpr int kWords = (kCodes + 3) / 4;
  uint32_t word[kWords];

  /// Loads from an address that is a multiple of kCodes bytes. Not by __ldg, which could move before
  /// wait_for_previous_kernel().
  __device__ static CodeVector load(const uint8_t* from) {
    CodeVector v;
    if constexpr (kCodes == 16) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      v.word[0] = all.x, v.word[1] = all.y, v.word[2] = all.z, v.word[3] = all.w;
    } else if constexpr (kCodes == 4) {
      v.word[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      v.word[0] = *from;
    }
    return v;
  }

  /// Writes the first min(count, kCodes) codes.
  __device__ void store(uint8_t* to, int count) const {
    if constexpr (kCodes == 1) {
      *to = static_cast<uint8_t>(word[0]);
    } else {
      if (kCodes == 16 && count >= 16) {
        *reinterpret_cast<uint4*>(to) = {word[0], word[1], word[2], word[3]};
        return;
      }
      for (int w = 0; w < kWords; ++w) {
        if (count >= 4 * w + 4) {
          reinterpret_cast<uint32_t*>(to)[w] = word[w];
        } else {
          for (int i = 4 * w; i < min(count, 4 * w + 4); ++i) to[i] = static_cast<uint8_t>(word[w] >> 8 * (i % 4));
        }
      }
    }
  }
};

/// A tensor of codes, read as uint8: int8 codes c become c + 128, and so does their zero point.
struct UnsignedEdge {
  uint32_t flip;       ///< each word of codes is xored with this
  int32_t zero_point;  ///< within [0, 255]
  float centre;        ///< 2^23 + zero_point

  explicit UnsignedEdge(const CodeInput& edge)
      : flip(edge.is_signed ? 0x80808080u : 0u),
        zero_point(edge.zero_point + (edge.is_signed ? 128 : 0)),
        centre(8388608.0f + static_cast<float>(zero_point)) {}

  /// Returns code - zero_point of byte `lane` of a flipped word, exactly: the byte becomes the low bits of 2^23.
  __device__ float centred(uint32_t flipped, int lane) const {
    return __uint_as_float(__byte_perm(flipped, 0x4B000000u, 0x7440 + lane)) - centre;
  }
};

/// Returns how many codes a thread may take at a time: the largest of 16, 4 and 1 that divides all these addresses and
/// strides.
inline int codes_per_thread(std::initializer_list<uintptr_t> addresses_and_strides) {
  uintptr_t bits = 0;
  for (const uintptr_t value : addresses_and_strides) bits |= value;
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

inline uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// Returns `count` in the 32 bits with which kernels index their threads. Throws Error(promise) when it is larger.
inline unsigned thread_count(long count, const char* kernel) {
  if (count > INT_MAX) throw promise_error(std::string(kernel) + ": more than 2^31 codes in a batch");
  return static_cast<unsigned>(count);
}

/// How the sum of a window becomes the value of an output.
struct AverageArgs {
  UnsignedEdge x;
  float multiplier;
  CudaRounding rounding;
  bool float_output;

  /// Returns t for `sum`, the sum of `codes` flipped codes (UnsignedEdge).
  __device__ float value(int32_t sum, int codes) const {
    return static_cast<float>(sum - codes * x.zero_point) * multiplier;
  }
  /// Writes t to element `index` of y: as a code, or with float_output as float32.
  __device__ void store(float t, uint8_t* y, ptrdiff_t index) const {
    store_result(t, rounding, float_output, y, index);
  }
};

/// Adds each flipped code to the sum of its channel: sum[i] += code i.
template <int kCodes>
__device__ void add_codes(const CodeVector<kCodes>& codes, uint32_t flip, int32_t* sum) {
#pragma unroll
  for (int i = 0; i < kCodes; ++i) sum[i] = dot4<false>(codes.word[i / 4] ^ flip, 1u << 8 * (i % 4), sum[i]);
}

}  // namespace octet::kernels
