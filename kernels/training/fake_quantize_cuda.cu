// SPDX-License-Identifier: Apache-2.0
#include "kernels/core/divide.h"
#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"
#include "kernels/training/fake_quantize.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSumThreads = 1024;  // of sum_scale_gradient_kernel
constexpr int kValues = 8;         // values of a thread: 16 or 32 bytes, and one byte of bits

/// The bounds of a code, which include those of the activation: rint and division are monotone.
struct Bounds {
  float damaged;  ///< the code of NaN, as in clamp_code()
  float lo, hi, zero_point;

  __device__ Bounds(const QParams& q, const Clamp& activation)
      : damaged(static_cast<float>(q.quant_min)),
        lo(fmaxf(damaged, rintf(activation.lo / q.scale) + static_cast<float>(q.zero_point))),
        hi(fminf(static_cast<float>(q.quant_max), rintf(activation.hi / q.scale) + static_cast<float>(q.zero_point))),
        zero_point(static_cast<float>(q.zero_point)) {}
};

/// Adds the bias to a thread's neighbouring values.
struct Bias {
  const float* of_channel;  ///< [channels] or null
  int channels;
  bool whole_rows;   ///< no pack of values spans two rows, and `of_channel` is aligned
  FastDivide packs;  ///< packs of a row, with whole_rows

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

/// Returns the packed slope dy/ds of the value after the activation; `rounded` is rint(x / scale).
__device__ int16_t slope_of(float x, float rounded, const QParams& q, const Clamp& activation) {
  const float v = activation(x), steps = v == x ? rounded : rintf(v / q.scale);
  const float code = steps + static_cast<float>(q.zero_point);
  if (!(code >= static_cast<float>(q.quant_min))) return kSlopeBelow;  // also for NaN
  if (code > static_cast<float>(q.quant_max)) return kSlopeAbove;
  return pack_slope(-fmaf(-steps, q.scale, v) / q.scale);
}

template <class T, bool kWide, bool kLearns>
__global__ void __launch_bounds__(kThreads) fake_quantize_kernel(FakeQuantization work, Bias bias) {
  const long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  if (at >= work.count) return;
  const long left = work.count - at;
  QParams q = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  if (work.learned.any()) q = work.learned.range().qparams(q);
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
  if constexpr (kLearns) {
    Pack<int16_t, kValues> slopes;
#pragma unroll
    for (int i = 0; i < kValues; ++i) slopes.value[i] = slope_of(value[i], code[i], q, work.activation);
    store<kValues, true>(slopes, work.slopes + at, left);
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

/// A thread's share of the gradients of a range.
struct RangeSums {
  float scale = 0, offset = 0;
};

/// Writes dx of a thread's values and returns its share of the range's gradients. kSums is ScaleGradient::sums().
template <class T, bool kWide, int kSums>
__device__ RangeSums pass_gradients(const FakeQuantizationGradient& work, long at) {
  const long left = work.count - at;
  Pack<T, kValues> pack = load<kValues, kWide>(static_cast<const T*>(work.dy) + at, left);
  RangeSums sums;
  if constexpr (kSums > 0) {
    const ScaleGradient& scale = work.scale;
    const EndSlopes slope = scale.ends();
    Pack<int16_t, kValues> slopes{};
    if (left >= kValues) {
      slopes = *reinterpret_cast<const Pack<int16_t, kValues>*>(scale.slopes + at);
    } else {
      for (int i = 0; i < left; ++i) slopes.value[i] = scale.slopes[at + i];
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float gradient = widen(pack.value[i]);
      sums.scale += gradient * slope.unpack(slopes.value[i]);
      if constexpr (kSums > 1) sums.offset += is_end(slopes.value[i]) ? gradient : 0.0f;
    }
  }
  const unsigned bits = work.bits[at / kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    if ((bits >> i & 1) == 0) pack.value[i] = narrow<T>(0.0f);
  }
  store<kValues, kWide>(pack, static_cast<T*>(work.dx) + at, left);
  return sums;
}

template <class T, bool kWide, int kSums>
__global__ void __launch_bounds__(kThreads) fake_quantize_backward_kernel(FakeQuantizationGradient work) {
  const long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  RangeSums sums;
  if (at < work.count) sums = pass_gradients<T, kWide, kSums>(work, at);
  if constexpr (kSums > 0) write_part<kThreads>(sums.scale, work.scale.parts + blockIdx.x);
  if constexpr (kSums > 1) write_part<kThreads>(sums.offset, work.scale.parts + gridDim.x + blockIdx.x);
}

template <class T, bool kWide>
void launch(const FakeQuantization& work, CudaStream stream) {
  const unsigned blocks = blocks_for(work.count, kThreads * kValues);
  const Bias bias(work);
  if (work.slopes != nullptr) {
    fake_quantize_kernel<T, kWide, true><<<blocks, kThreads, 0, stream>>>(work, bias);
  } else {
    fake_quantize_kernel<T, kWide, false><<<blocks, kThreads, 0, stream>>>(work, bias);
  }
}

template <class T, bool kWide>
void launch(const FakeQuantizationGradient& work, CudaStream stream) {
  const unsigned blocks = blocks_for(work.count, kThreads * kValues);
  switch (work.scale.sums()) {
    case 0:
      fake_quantize_backward_kernel<T, kWide, 0><<<blocks, kThreads, 0, stream>>>(work);
      break;
    case 1:
      fake_quantize_backward_kernel<T, kWide, 1><<<blocks, kThreads, 0, stream>>>(work);
      break;
    default:
      fake_quantize_backward_kernel<T, kWide, 2><<<blocks, kThreads, 0, stream>>>(work);
  }
}

}  // namespace

void cuda_fake_quantize(const FakeQuantization& work, CudaStream stream) {
  if (work.count == 0) return;
  const bool aligned = is_aligned(work.x) && is_aligned(work.y) && is_aligned(work.residual);
  with_width(work.type, aligned, [&](auto type, auto wide) { launch<decltype(type), wide()>(work, stream); });
  check_launch("fake_quantize");
}

int fake_quantize_backward_parts(long count) { return static_cast<int>(blocks_for(count, kThreads * kValues)); }

void cuda_fake_quantize_backward(const FakeQuantizationGradient& work, CudaStream stream) {
  if (work.count > 0) {
    const bool aligned = is_aligned(work.dy) && is_aligned(work.dx);
    with_width(work.type, aligned, [&](auto type, auto wide) { launch<decltype(type), wide()>(work, stream); });
    check_launch("fake_quantize_backward");
  }
  if (work.scale.dscale != nullptr)
    cuda_sum_scale_gradient(work.scale, fake_quantize_backward_parts(work.count), stream);
}

namespace {

/// A block adds up the parts of one gradient.
__global__ void __launch_bounds__(kSumThreads) sum_scale_gradient_kernel(ScaleGradient work, int count) {
  __shared__ double sums[kSumThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const float* parts = work.parts + static_cast<long>(blockIdx.x) * count;
  double total = 0;
  for (int i = thread; i < count; i += kSumThreads) total += parts[i];
  sums[thread] = total;
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread != 0) return;
  const QParams q = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  float* const gradient = blockIdx.x == 0 ? work.dscale : work.doffset;
  *gradient = static_cast<float>(sums[0] * range_gradient_factor(work.rule, work.values, q));
}

}  // namespace

void cuda_sum_scale_gradient(const ScaleGradient& work, int count, CudaStream stream) {
  sum_scale_gradient_kernel<<<work.sums(), kSumThreads, 0, stream>>>(work, count);
  check_launch("sum_scale_gradient");
}

}  // namespace octet::kernels
