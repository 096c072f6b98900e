#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"
#include "kernels/fake_quantize/cuda_fake_quantize.h"
#include "kernels/fake_quantize/rounded_quotient.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;  // of a pack: 16 or 32 bytes, and one byte of bits
/// A thread's. All are loaded before the first is used, and share the work of reading and dividing by qparams.
constexpr int kPacks = 2;

/// One fake quantizer with its activation, which becomes part of the code's bounds: rint and division keep order.
struct Quantizer {
  RoundedQuotient quotient;
  Clamp activation;
  float damaged;  ///< the code of NaN, as clamp_code has it; like all codes here less the zero point
  float lo, hi;

  __device__ Quantizer(const QParams& q, const Clamp& activation)
      : quotient(q.scale),
        activation(activation),
        damaged(static_cast<float>(q.quant_min - q.zero_point)),
        lo(fmaxf(damaged, rintf(activation.lo / q.scale))),
        hi(fminf(static_cast<float>(q.quant_max - q.zero_point), rintf(activation.hi / q.scale))) {}

  __device__ float clamped(float code) const { return fminf(fmaxf(code, lo), hi); }
  __device__ float value(float code) const { return fmaf(quotient.scale, code, 0.0f); }  // no -0
  __device__ bool passes(float x, float code, float clamped) const { return code == clamped && activation.passes(x); }

  /// Replaces the values by fake-quantized ones and sets the bits of those whose gradient passes; leaves all as it is
  /// and returns false when one of them wants a division.
  template <class T>
  __device__ bool estimated(Pack<T, kValues>& pack, unsigned& bits) const {
    float x[kValues], code[kValues];
    bool sure = true;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      x[i] = widen(pack.value[i]);
      code[i] = quotient.estimate(x[i], sure);
    }
    if (!sure) return false;
    bits = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float kept = clamped(code[i]);
      bits |= static_cast<unsigned>(passes(x[i], code[i], kept)) << i;
      code[i] = value(kept);
    }
    pack = narrowed<T>(code);
    return true;
  }
};

/// The same for up to kValues values of any kind and place, by division.
template <class T>
__device__ unsigned divided(const Quantizer& quantizer, const T* x, T* y, long count) {
  unsigned bits = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const float value = widen(x[i]), code = quantizer.quotient.exact(value);
    const float kept = value == value ? quantizer.clamped(code) : quantizer.damaged;
    bits |= static_cast<unsigned>(quantizer.passes(value, code, kept)) << i;
    y[i] = narrow<T>(quantizer.value(kept));
  }
  return bits;
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads) fake_quantize_kernel(FakeQuantization work) {
  constexpr long kNext = kThreads * kValues;  // between a thread's packs: neighbours read neighbours
  const long first = blockIdx.x * kPacks * kNext + threadIdx.x * kValues;
  const T* const x = static_cast<const T*>(work.x);
  T* const y = static_cast<T*>(work.y);
  Pack<T, kValues> pack[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const long at = first + p * kNext;
    if (kWide && at + kValues <= work.count) pack[p] = *reinterpret_cast<const Pack<T, kValues>*>(x + at);
  }
  const QParams qparams = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  const Quantizer quantizer(qparams, work.activation);
  unsigned rest = 0;  // bit p: pack p is still to do; at the end, since divisions are long and few
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const long at = first + p * kNext;
    unsigned bits;
    if (kWide && at + kValues <= work.count && quantizer.estimated(pack[p], bits)) {
      *reinterpret_cast<Pack<T, kValues>*>(y + at) = pack[p];
      if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
    } else {
      rest |= 1u << p;
    }
  }
#pragma unroll 1
  for (long at = first; rest != 0; rest >>= 1, at += kNext) {
    if ((rest & 1) == 0 || at >= work.count) continue;
    const unsigned bits = divided(quantizer, x + at, y + at, min(static_cast<long>(kValues), work.count - at));
    if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
  }
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads) fake_quantize_backward_kernel(FakeQuantizationGradient work) {
  const long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  if (at >= work.count) return;
  Pack<T, kValues> pack = load<kValues, kWide>(static_cast<const T*>(work.dy) + at, work.count - at);
  const unsigned bits = work.bits[at / kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    if ((bits >> i & 1) == 0) pack.value[i] = narrow<T>(0.0f);
  }
  store<kValues, kWide>(pack, static_cast<T*>(work.dx) + at, work.count - at);
}

}  // namespace

void cuda_fake_quantize(const FakeQuantization& work, CudaStream stream) {
  if (work.count == 0) return;
  const unsigned blocks = blocks_for(work.count, kThreads * kValues * kPacks);
  with_type(work.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(work.x) && is_aligned(work.y)) {
      fake_quantize_kernel<T, true><<<blocks, kThreads, 0, stream>>>(work);
    } else {
      fake_quantize_kernel<T, false><<<blocks, kThreads, 0, stream>>>(work);
    }
  });
  check_launch("fake_quantize");
}

void cuda_fake_quantize_backward(const FakeQuantizationGradient& work, CudaStream stream) {
  if (work.count == 0) return;
  const unsigned blocks = blocks_for(work.count, kThreads * kValues);
  with_type(work.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(work.dy) && is_aligned(work.dx)) {
      fake_quantize_backward_kernel<T, true><<<blocks, kThreads, 0, stream>>>(work);
    } else {
      fake_quantize_backward_kernel<T, false><<<blocks, kThreads, 0, stream>>>(work);
    }
  });
  check_launch("fake_quantize_backward");
}

}  // namespace octet::kernels
