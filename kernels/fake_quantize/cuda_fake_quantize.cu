#include "kernels/cuda_block_sum.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"
#include "kernels/fake_quantize/cuda_fake_quantize.h"
#include "kernels/fake_quantize/learned_range.h"
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

/// Packed dy/ds of the value after the activation; `rounded` = rint(x / scale).
__device__ int16_t slope_of(float x, float rounded, const QParams& q, const Clamp& activation) {
  const float v = activation(x), steps = v == x ? rounded : rintf(v / q.scale);
  const float code = steps + static_cast<float>(q.zero_point);
  if (!(code >= static_cast<float>(q.quant_min))) return kSlopeBelow;  // NaN, too
  if (code > static_cast<float>(q.quant_max)) return kSlopeAbove;
  return pack_slope(-fmaf(-steps, q.scale, v) / q.scale);
}

/// The same of pact, whose gradient has an end where the range has, not where its codes do.
__device__ int16_t clipping_slope(float v, const ClipEnds& ends) {
  if (!(v >= ends.lo)) return kSlopeBelow;  // NaN, too
  return v >= ends.hi ? kSlopeAbove : int16_t{0};
}

template <class T, bool kWide, bool kLearns>
__global__ void __launch_bounds__(kThreads) fake_quantize_kernel(FakeQuantization work, Bias bias) {
  const long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  if (at >= work.count) return;
  const long left = work.count - at;
  QParams q = work.device_qparams != nullptr ? *work.device_qparams : work.qparams;
  bool clips = false;
  if constexpr (kLearns) clips = work.learned.rule == RangeRule::pact;
  float width = 0;
  if (work.learned.any()) {
    const LearnedRange range = work.learned.range();
    q = range.qparams(q);
    width = range.value;
  }
  const ClipEnds ends(width, q);
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
    for (int i = 0; i < kValues; ++i) {
      slopes.value[i] =
          clips ? clipping_slope(work.activation(value[i]), ends) : slope_of(value[i], code[i], q, work.activation);
    }
    store<kValues, true>(slopes, work.slopes + at, left);
  }
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const float x = value[i];
    const float shifted = code[i] + bounds.zero_point;
    const float clamped = x == x ? fminf(fmaxf(shifted, bounds.lo), bounds.hi) : bounds.damaged;
    pack.value[i] = narrow<T>(q.scale * (clamped - bounds.zero_point));
    const bool inside = clips ? ends.pass(work.activation(x)) : shifted == clamped;
    bits |= static_cast<unsigned>(inside && work.activation.passes(x)) << i;
  }
  store<kValues, kWide>(pack, static_cast<T*>(work.y) + at, left);
  if (left < kValues) bits &= (1u << left) - 1;
  if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
}

/// A thread's share of the sums over dy times its slopes.
struct RangeSums {
  float scale = 0, offset = 0;
};

/// One thread's values. kSums: of ScaleGradient.
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
  with_type(work.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(work.x) && is_aligned(work.y) && is_aligned(work.residual)) {
      launch<T, true>(work, stream);
    } else {
      launch<T, false>(work, stream);
    }
  });
  check_launch("fake_quantize");
}

int fake_quantize_backward_parts(long count) { return static_cast<int>(blocks_for(count, kThreads * kValues)); }

void cuda_fake_quantize_backward(const FakeQuantizationGradient& work, CudaStream stream) {
  if (work.count > 0) {
    with_type(work.type, [&](auto type) {
      using T = decltype(type);
      if (is_aligned(work.dy) && is_aligned(work.dx)) {
        launch<T, true>(work, stream);
      } else {
        launch<T, false>(work, stream);
      }
    });
    check_launch("fake_quantize_backward");
  }
  if (work.scale.dscale != nullptr)
    cuda_sum_scale_gradient(work.scale, fake_quantize_backward_parts(work.count), stream);
}

}  // namespace octet::kernels
