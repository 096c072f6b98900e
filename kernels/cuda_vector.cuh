// Several neighbouring codes in one thread: wide loads, exact stores. Include it in .cu files only.
#pragma once

#include <climits>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda_codes.cuh"
#include "src/common/error.h"

namespace octet::kernels {

/// kCodes = 16, 4 or 1 neighbouring codes.
template <int kCodes>
struct CodeVector {
  static constexpr int kWords = (kCodes + 3) / 4;
  uint32_t word[kWords];

  /// `from` is a multiple of kCodes bytes. Not __ldg: cuda_overlap.h says why.
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

  /// Writes the first `count` codes (all, when count > kCodes).
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

/// An edge whose codes are read as uint8: int8 codes c become c + 128, and so does their zero point.
struct UnsignedEdge {
  uint32_t flip;       ///< xor of each word of codes
  int32_t zero_point;  ///< [0, 255]
  float centre;        ///< 2^23 + zero_point

  explicit UnsignedEdge(const CodeInput& edge)
      : flip(edge.is_signed ? 0x80808080u : 0u),
        zero_point(edge.zero_point + (edge.is_signed ? 128 : 0)),
        centre(8388608.0f + static_cast<float>(zero_point)) {}

  /// float(xq - zx) of a code of a flipped word, exact: its byte becomes the low bits of 2^23.
  __device__ float centred(uint32_t flipped, int lane) const {
    return __uint_as_float(__byte_perm(flipped, 0x4B000000u, 0x7440 + lane)) - centre;
  }
};

/// How many codes a thread may take at once when these pointers and strides are multiples of that: 16, 4 or 1.
inline int codes_per_thread(std::initializer_list<uintptr_t> pointers_and_strides) {
  uintptr_t bits = 0;
  for (const uintptr_t value : pointers_and_strides) bits |= value;
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

inline uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// `count` as the 32 bits that kernels index threads with.
inline unsigned thread_count(long count, const char* kernel) {
  if (count > INT_MAX) throw promise_error(std::string(kernel) + ": more than 2^31 codes in a batch");
  return static_cast<unsigned>(count);
}

}  // namespace octet::kernels
