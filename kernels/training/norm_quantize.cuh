// SPDX-License-Identifier: Apache-2.0
// What the passes of norm_quantize.h and excite.h share in device code: packs of eight 16-bit values, what is read for
// the last time, and fake quantization of eight values without dividing. Include it in .cu files only.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/training/batch_norm_rows.cuh"
#include "kernels/training/fake_quantize.h"
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

/// Throws unless a thread can take eight channels, and unless a function comes without a residual.
inline void require_fits(bool wide, const void* function, const void* residual) {
  if (!wide) throw promise_error("norm_quantize: aligned channels in eights only");
  if (function != nullptr && residual != nullptr)
    throw promise_error("norm_quantize: a function without residual only");
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
template <class T>
__device__ inline Pack<T, kValues> load_last(const T* x) {
  const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(x));
  Pack<T, kValues> pack;
  memcpy(static_cast<void*>(&pack), &raw, sizeof raw);
  return pack;
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

/// Writes the values of a pack as float to x. They stay in whole registers on the way.
template <class T>
__device__ inline void widen_to(float (&x)[kValues], const Pack<T, kValues>& pack) {
  uint32_t words[kValues / 2];
  memcpy(words, &pack, sizeof words);
#pragma unroll
  for (int i = 0; i < kValues / 2; ++i) {
    const float2 two = widen_two(words[i], T{});
    x[2 * i] = two.x;
    x[2 * i + 1] = two.y;
  }
}

/// Returns values rounded to T.
template <class T>
__device__ inline Pack<T, kValues> narrowed(const float (&x)[kValues]) {
  uint32_t words[kValues / 2];
#pragma unroll
  for (int i = 0; i < kValues / 2; ++i) words[i] = narrow_two(x[2 * i], x[2 * i + 1], T{});
  Pack<T, kValues> pack;
  memcpy(static_cast<void*>(&pack), words, sizeof words);
  return pack;
}

/// Returns the number `which` of a thread's channels.
__device__ inline Pack<float, kValues> numbers_at(const float* numbers, int which, int channels, int first) {
  return load<kValues, true>(numbers + static_cast<long>(which) * channels + first, kValues);
}

/// Returns the qparams of some work as of now. Without `?:`, which would copy all of `work` to local memory.
template <class Work>
__device__ QParams qparams_of(const Work& work) {
  QParams q = work.qparams;
  if (work.device_qparams != nullptr) q = *work.device_qparams;
  return q;
}

/// Rounds sums to codes. Codes are counted in steps from the zero point here. NaN becomes the lowest.
struct Rounder {
  static constexpr float kRound = 0x1.8p23f;  // adding it leaves no bits for fractions

  RoundedQuotient quotient;
  float lo, hi;  ///< the codes' bounds, which include those of the activation: rint and division are monotone
  float lowest;  ///< quant_min in steps
  Clamp activation;

  __device__ Rounder(const QParams& q, const Clamp& of)
      : quotient(q.scale),
        lo(fmaxf(static_cast<float>(q.quant_min - q.zero_point), rintf(of.lo / q.scale))),
        hi(fminf(static_cast<float>(q.quant_max - q.zero_point), rintf(of.hi / q.scale))),
        lowest(static_cast<float>(q.quant_min - q.zero_point)),
        activation(of) {}

  /// Replaces sums by their codes and returns a bit for each through which the gradient passes.
  __device__ unsigned codes(float (&sum)[kValues]) const {
    float steps[kValues], zero = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float estimate = sum[i] * quotient.inverse;
      steps[i] = quotient.corrected(sum[i], estimate);
      zero = fmaf(estimate, 0.0f, zero);  // NaN for NaN and infinity
    }
    if (zero != 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const float estimate = sum[i] * quotient.inverse;
        if (!(fabsf(estimate) < INFINITY)) steps[i] = estimate;
      }
    }
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float rounded = (steps[i] + kRound) - kRound, clamped = fminf(fmaxf(rounded, lo), hi);
      if (rounded == clamped && activation.passes(sum[i])) bits |= 1u << i;
      sum[i] = clamped;
    }
    return bits;
  }

  /// Replaces sums by the codes' values and returns a bit for each through which the gradient passes.
  __device__ unsigned round(float (&sum)[kValues]) const {
    const unsigned bits = codes(sum);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] = quotient.scale * sum[i];
    return bits;
  }

  /// Returns the code of a sum as codes() does, but not of NaN and infinity, whose gradient does not pass.
  __device__ float code(float sum) const {
    const float steps = quotient.corrected(sum, sum * quotient.inverse);
    return fminf(fmaxf((steps + kRound) - kRound, lo), hi);
  }

  /// Returns the place of a code in a FunctionTable.
  __device__ unsigned place(float code) const { return __float_as_uint(code + (kRound - lowest)) & 0xff; }
};

/// One of a FunctionTable's columns in shared memory, for kernels whose blocks have at least 256 threads. All threads
/// of a block make it together.
template <class T>
struct SharedColumn {
  const T* values;

  __device__ explicit SharedColumn(const float* column) {
    __shared__ T copy[256];
    if (threadIdx.x < 256) copy[threadIdx.x] = narrow<T>(column[threadIdx.x]);
    __syncthreads();
    values = copy;
  }
};

}  // namespace octet::kernels::norm_quantize
