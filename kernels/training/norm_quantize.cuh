// SPDX-License-Identifier: Apache-2.0
// What the passes of norm_quantize.h share in device code: packs of 16-bit values and what is read for the last time.
// Include it in .cu files only.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/training/batch_norm_rows.cuh"
#include "kernels/training/norm_quantize.h"
#include "src/base/error.h"

namespace octet::kernels::norm_quantize {

using batch_norm::kThreads;
using batch_norm::kValues;

constexpr int kBlocksPerMultiprocessor = 4;  // 64 registers a thread
/// Returns how many blocks of a backward pass: with a function it keeps two more numbers of each channel in registers.
constexpr int blocks_at_once(bool function) { return function ? 3 : kBlocksPerMultiprocessor; }
/// Rows that a thread loads before it uses any, where it reads so many tensors: 64 or 96 bytes in flight.
constexpr int rows_at_once(int tensors) { return tensors == 1 ? 4 : 2; }

/// Throws unless there are kernels for a function.
inline void require_function_fits(bool wide, const void* residual) {
  if (!wide || residual != nullptr)
    throw promise_error("norm_quantize: a function needs aligned channels in eights, and no residual");
}

/// Calls f with a value of the 16-bit type that `type` names.
template <class F>
void with_half(ValueType type, const F& f) {
  if (type == ValueType::float32) throw promise_error("norm_quantize: float16 and bfloat16 only");
  if (type == ValueType::float16) {
    f(__half{});
  } else {
    f(__nv_bfloat16{});
  }
}

/// Returns the values at x, which no one is to read again before the cache has taken in other memory.
template <int kPack, class T>
__device__ inline Pack<T, kPack> load_last(const T* x) {
  if constexpr (sizeof(Pack<T, kPack>) == sizeof(uint4)) {
    const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(x));
    Pack<T, kPack> pack;
    memcpy(static_cast<void*>(&pack), &raw, sizeof raw);
    return pack;
  } else {
    return load<kPack, true>(x, kPack);
  }
}

/// Two 16-bit values in a register, as float and back.
__device__ inline float2 widen_two(uint32_t two, __half) {
  __half2 pair;
  memcpy(static_cast<void*>(&pair), &two, sizeof two);
  return __half22float2(pair);
}
__device__ inline float2 widen_two(uint32_t two, __nv_bfloat16) {
  return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
}
__device__ inline uint32_t narrow_two(float first, float second, __half) {
  const __half2 pair = __floats2half2_rn(first, second);
  uint32_t two;
  memcpy(&two, &pair, sizeof two);
  return two;
}
__device__ inline uint32_t narrow_two(float first, float second, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t two;
  memcpy(&two, &pair, sizeof two);
  return two;
}

/// Writes the values of a pack as float to x. Packs of eight stay in whole registers on the way.
template <class T, int kPack>
__device__ inline void widen_to(float (&x)[kPack], const Pack<T, kPack>& pack) {
  if constexpr (kPack == kValues) {
    uint32_t words[kPack / 2];
    memcpy(words, &pack, sizeof words);
#pragma unroll
    for (int i = 0; i < kPack / 2; ++i) {
      const float2 two = widen_two(words[i], T{});
      x[2 * i] = two.x;
      x[2 * i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = widen(pack.value[i]);
  }
}

/// Returns values rounded to T.
template <class T, int kPack>
__device__ inline Pack<T, kPack> narrowed(const float (&x)[kPack]) {
  Pack<T, kPack> pack;
  if constexpr (kPack == kValues) {
    uint32_t words[kPack / 2];
#pragma unroll
    for (int i = 0; i < kPack / 2; ++i) words[i] = narrow_two(x[2 * i], x[2 * i + 1], T{});
    memcpy(static_cast<void*>(&pack), words, sizeof words);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.value[i] = narrow<T>(x[i]);
  }
  return pack;
}

/// Returns the number `which` of a thread's channels.
template <int kPack>
__device__ inline Pack<float, kPack> numbers_at(const float* numbers, int which, int channels, int first) {
  return load<kPack, true>(numbers + static_cast<long>(which) * channels + first, kPack);
}

}  // namespace octet::kernels::norm_quantize
