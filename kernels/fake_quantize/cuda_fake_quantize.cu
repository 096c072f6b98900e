#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"
#include "kernels/fake_quantize/cuda_fake_quantize.h"
#include "kernels/fake_quantize/rounded_quotient.h"
#include "kernels/fast_divide.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;  // a thread's: 16 or 32 bytes, and one byte of bits

/// The activation becomes part of the code's bounds: rint and division keep order.
struct Bounds {
  float damaged;  ///< the code of NaN, as clamp_code has it
  float lo, hi, zero_point;

  __device__ Bounds(const QParams& q, const Clamp& activation)
      : damaged(static_cast<float>(q.quant_min)),
        lo(fmaxf(damaged, rintf(activation.lo / q.scale) + static_cast<float>(q.zero_point))),
        hi(fminf(static_cast<float>(q.quant_max), rintf(activation.hi / q.scale) + static_cast<float>(q.zero_point))),
        zero_point(static_cast<float>(q.zero_point)) {}
};

/// Adds the bias to a thread's neighbouring values.
struct Bias {
  const float* of_channel;  // null: none
  int channels;
  bool whole_rows;   // no pack of values spans two rows, and each starts where it can be loaded from
  FastDivide packs;  // of a row, then

  explicit Bias(const FakeQuantization& work)
      : of_channel(work.bias),
        channels(work.channels),
        whole_rows(work.channels % kValues == 0 && is_aligned(work.bias)),
        packs(whole_rows ? static_cast<uint32_t>(work.channels / kValues) : 1u) {}

  __device__ void add_to(float* value, long at) const {
    if (of_channel == nullptr) return;
    if (whole_rows) {
      const int pack = static_cast<int>(at / kValues);
      const int column = pack - packs.divide(pack) * static_cast<int>(packs.divisor);
      const Pack<float, kValues> bias = load<kValues, true>(of_channel + column * kValues, kValues);
#pragma unroll
      for (int i = 0; i < kValues; ++i) value[i] += bias.value[i];
    } else {
      int channel = static_cast<int>(at % channels);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        value[i] += of_channel[channel];
        channel = channel + 1 == channels ? 0 : channel + 1;
      }
    }
  }
};

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads) fake_quantize_kernel(FakeQuantization work, Bias bias) {
  const long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  if (at >= work.count) return;
  const long left = work.count - at;
  const QParams q = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  const Bounds bounds(q, work.activation);
  const RoundedQuotient quotient(q.scale);
  Pack<T, kValues> pack = load<kValues, kWide>(static_cast<const T*>(work.x) + at, left);
  float value[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) value[i] = widen(pack.value[i]);
  bias.add_to(value, at);
  if (work.residual != nullptr) {
    const Pack<T, kValues> residual = load<kValues, kWide>(static_cast<const T*>(work.residual) + at, left);
#pragma unroll
    for (int i = 0; i < kValues; ++i) value[i] += widen(residual.value[i]);
  }
  float code[kValues];
  bool sure = true;
#pragma unroll
  for (int i = 0; i < kValues; ++i) code[i] = quotient.estimate(value[i], sure);
  if (!sure) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) code[i] = quotient.exact(value[i]);
  }
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const float x = value[i];
    const float shifted = code[i] + bounds.zero_point;
    const float clamped = x == x ? fminf(fmaxf(shifted, bounds.lo), bounds.hi) : bounds.damaged;
    pack.value[i] = narrow<T>(q.scale * (clamped - bounds.zero_point));
    bits |= static_cast<unsigned>(shifted == clamped && work.activation.passes(x)) << i;
  }
  store<kValues, kWide>(pack, static_cast<T*>(work.y) + at, left);
  if (left < kValues) bits &= (1u << left) - 1;
  if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
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
  const unsigned blocks = blocks_for(work.count, kThreads * kValues);
  const Bias bias(work);
  with_type(work.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(work.x) && is_aligned(work.y) && is_aligned(work.residual)) {
      fake_quantize_kernel<T, true><<<blocks, kThreads, 0, stream>>>(work, bias);
    } else {
      fake_quantize_kernel<T, false><<<blocks, kThreads, 0, stream>>>(work, bias);
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
