// SPDX-License-Identifier: Apache-2.0
// Real values of any ValueType in device code: loaded and stored several at a time, computed with as float, and summed
// over a block. Include it in .cu files only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/core/cuda.h"

namespace octet::kernels {

/// Returns x as float.
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Returns x rounded to T: to the nearest, ties to even.
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// N neighbouring values of one thread, loaded and stored 16 bytes at a time.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T value[N];
};

/// Returns the N values at x. Only the first `left` exist; the rest become zeros. kWide: x is aligned as a Pack is.
template <int N, bool kWide, class T>
__device__ inline Pack<T, N> load(const T* x, long left) {
  if (kWide && left >= N) return *reinterpret_cast<const Pack<T, N>*>(x);
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.value[i] = i < left ? x[i] : narrow<T>(0.0f);
  return pack;
}

/// Writes the first min(left, N) values to y.
template <int N, bool kWide, class T>
__device__ inline void store(const Pack<T, N>& pack, T* y, long left) {
  if (kWide && left >= N) {
    *reinterpret_cast<Pack<T, N>*>(y) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < left) y[i] = pack.value[i];
  }
}

/// Returns whether the address is a multiple of `bytes`; that of a null pointer is.
inline bool is_aligned(const void* pointer, uintptr_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/// Calls f with a value of the C++ type that `type` names.
template <class F>
void with_type(ValueType type, const F& f) {
  switch (type) {
    case ValueType::float32:
      return f(float{});
    case ValueType::float16:
      return f(__half{});
    case ValueType::bfloat16:
      return f(__nv_bfloat16{});
  }
}

/// Calls f with a value of the C++ type and `wide` as an integral_constant.
template <class F>
void with_width(ValueType type, bool wide, const F& f) {
  with_type(type, [&](auto value) {
    if (wide) {
      f(value, std::integral_constant<bool, true>());
    } else {
      f(value, std::integral_constant<bool, false>());
    }
  });
}

/// Calls f with a value of the C++ type and the number of neighbouring values that a thread takes, as an
/// integral_constant: kValues when `wide`, else 1.
template <int kValues, class F>
void with_pack(ValueType type, bool wide, const F& f) {
  with_width(type, wide,
             [&](auto value, auto is_wide) { f(value, std::integral_constant < int, is_wide() ? kValues : 1 > ()); });
}

/// Returns, to thread 0, the sum of `value` over the block's kThreads threads, added in a fixed order. Every thread of
/// the block must call it.
template <int kThreads>
__device__ float block_sum(float value) {
  __shared__ float of_warp[kThreads / 32];
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffff, value, other);
  __syncthreads();  // until an earlier sum has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) value += of_warp[warp];
  }
  return value;
}

/// Writes the sum of `value` over the block to *part. Every thread of the block must call it.
template <int kThreads>
__device__ void write_part(float value, float* part) {
  const float sum = block_sum<kThreads>(value);
  if (threadIdx.x == 0) *part = sum;
}

}  // namespace octet::kernels
