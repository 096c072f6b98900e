// How tensor-core convolutions round and pack codes, four at a time.
#pragma once

#include <cstdint>

#include "kernels/codes.h"
#include "kernels/conv2d_int8/cuda/saturate.cuh"

namespace octet::kernels {

/// CudaRounding (cuda_codes.cuh) of four values, to a word of codes: packing clamps to a byte, so that only a bound
/// within the byte's range costs instructions.
struct PackedRounding {
  float low;       ///< of t: clamp_min less the zero point
  int32_t offset;  ///< undoes the constant that rounds, adds the zero point, and 128 to int8 codes
  uint32_t flip;   ///< takes these 128 off again
  uint32_t most;   ///< clamp_max, with the same 128, in every byte
  bool limited;    ///< clamp_max is not the largest code

  explicit PackedRounding(const CodeOutput& out)
      : low(FastRounding(out).low),
        offset(FastRounding(out).offset + (out.is_signed ? 128 : 0)),
        flip(out.is_signed ? 0x80808080u : 0u),
        most(static_cast<uint32_t>(out.clamp_max + (out.is_signed ? 128 : 0)) * 0x01010101u),
        limited(most != 0xFFFFFFFFu) {}

#if defined(__CUDACC__)
  /// The codes, but for finish(). A large t stays one: floats in order are integers in order.
  __device__ uint32_t operator()(float a, float b, float c, float d) const {
    return saturate_to_bytes(rounded(a), rounded(b), rounded(c), rounded(d));
  }
  template <int kWords>
  __device__ void finish(uint32_t (&word)[kWords]) const {
    if (limited) {
#pragma unroll
      for (uint32_t& w : word) w = __vminu4(w, most);
    }
#pragma unroll
    for (uint32_t& w : word) w ^= flip;
  }

 private:
  __device__ int32_t rounded(float t) const {
    return __float_as_int(fmaxf(t, low) + FastRounding::kRoundingConstant) + offset;
  }
#endif
};

}  // namespace octet::kernels
