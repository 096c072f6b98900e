// Real values of any ValueType in device code: eight of them at a time, computed with as float. Include in .cu files
// only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/value_type.h"

namespace octet::kernels {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

/// To the nearest, ties to even.
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

/// N values that are loaded and stored together, 16 bytes at a time.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T value[N];
};

/// values[0..N) from x, of which `left` exist; the rest are zeros. kWide: x is aligned like a Pack.
template <int N, bool kWide, class T>
__device__ inline Pack<T, N> load(const T* x, long left) {
  if (kWide && left >= N) return *reinterpret_cast<const Pack<T, N>*>(x);
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.value[i] = i < left ? x[i] : narrow<T>(0.0f);
  return pack;
}

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

inline bool is_aligned(const void* pointer, uintptr_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/// Calls f with a value of the C++ type.
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

}  // namespace octet::kernels
