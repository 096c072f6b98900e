// SPDX-License-Identifier: Apache-2.0
// The backward pass. Where a residual needs the masked gradient anyway, the first pass writes it and the second reads
// it in place of what it was made of.
#include "kernels/core/divide.h"
#include "kernels/training/norm_quantize.cuh"

namespace octet::kernels {

using namespace batch_norm;
using namespace norm_quantize;

namespace {

/// The function behind the quantizer, in a thread's channels: what the gradient at its result is multiplied by.
template <class T>
struct FunctionSlope {
  Rounder rounder;
  const float* slopes;  ///< by place of a code, in shared memory
  Pack<float, kValues> gain, offset;

  __device__ FunctionSlope(const NormQuantizationGradient& work, const Place<kValues>& place)
      : rounder(qparams_of(work), work.activation), slopes(SharedColumn<float>(work.function->slope).values) {
    if (place.lane >= place.lanes) return;
    gain = numbers_at(work.numbers, kNormGain, work.x.channels, place.column * kValues);
    offset = numbers_at(work.numbers, kNormOffset, work.x.channels, place.column * kValues);
  }
  __device__ void multiply(float (&gradient)[kValues], const float (&x)[kValues]) const {
    float normal[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) normal[i] = fmaf(x[i], gain.value[i], offset.value[i]);
    widen_to(normal, narrowed<T>(normal));
#pragma unroll
    for (int i = 0; i < kValues; ++i) gradient[i] *= slopes[rounder.place(rounder.code(normal[i]))];
  }
};

/// There is none.
struct NoFunction {
  __device__ NoFunction(const NormQuantizationGradient&, const Place<kValues>&) {}
  __device__ void multiply(float (&)[kValues], const float (&)[kValues]) const {}
};

template <class T, bool kFunction>
using Slope = std::conditional_t<kFunction, FunctionSlope<T>, NoFunction>;

/// Another reader's gradient: none, one a row, or one for several rows.
enum class Also { none, rows, shared };

/// Reads the gradient at y, where the bits let it pass; 0 elsewhere.
template <class T, Also kAlso>
struct MaskedGradient {
  Pack<T, kValues> dy, also;
  unsigned bits;

  /// kLast: no one reads these values again soon.
  template <bool kLast>
  __device__ void read(const NormQuantizationGradient& work, const Place<kValues>& place, const FastDivide& also_rows,
                       long row) {
    const long at = place.at(row);
    const T* const dy_at = static_cast<const T*>(work.dy) + at;
    dy = kLast ? load_last(dy_at) : load<kValues, true>(dy_at, kValues);
    const T* const also_of = static_cast<const T*>(work.also);
    if constexpr (kAlso == Also::rows)
      also = kLast ? load_last(also_of + at) : load<kValues, true>(also_of + at, kValues);
    if constexpr (kAlso == Also::shared)
      also = load<kValues, true>(also_of + place.at(also_rows.divide(static_cast<int>(row))), kValues);
    bits = work.bits[at / kValues];
  }
  __device__ void get(float (&gradient)[kValues]) const {
    widen_to(gradient, dy);
    if constexpr (kAlso != Also::none) {
      float more[kValues];
      widen_to(more, also);
#pragma unroll
      for (int i = 0; i < kValues; ++i) gradient[i] += more[i];
      widen_to(gradient, narrowed<T>(gradient));
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) gradient[i] = (bits >> i & 1) != 0 ? gradient[i] : 0.0f;
  }
};

/// Sums of a thread's channels over its rows.
template <class T, Also kAlso, bool kKeeps, bool kFunction>
struct GradientSums {
  const NormQuantizationGradient& work;
  const Place<kValues>& place;
  const FastDivide& also_rows;
  Slope<T, kFunction> slope;
  float mean[kValues], totals[2][kValues] = {};  ///< of the gradient, and of its products with x - mean

  template <int kRows>
  __device__ void take(long first) {
    MaskedGradient<T, kAlso> masked[kRows];
    Pack<T, kValues> x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const long row = first + r * place.lanes;
      masked[r].template read<kKeeps>(work, place, also_rows, row);
      x[r] = load<kValues, true>(static_cast<const T*>(work.x.x) + place.at(row), kValues);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float gradient[kValues], value[kValues];
      masked[r].get(gradient);
      widen_to(value, x[r]);
      slope.multiply(gradient, value);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        totals[0][i] += gradient[i];
        totals[1][i] = fmaf(gradient[i], value[i] - mean[i], totals[1][i]);
      }
      if constexpr (kKeeps)
        store<kValues, true>(narrowed<T>(gradient), static_cast<T*>(work.masked) + place.at(first + r * place.lanes),
                             kValues);
    }
  }
};

/// Writes each part's sums of the masked gradient and of its products with x - mean to parts [part][2][channels].
template <class T, Also kAlso, bool kKeeps, bool kFunction>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kFunction))
    norm_gradient_sums_kernel(NormQuantizationGradient work, FastDivide also_rows, long part_rows) {
  const Place<kValues> place(work.x, blockIdx.x, part_rows);
  GradientSums<T, kAlso, kKeeps, kFunction> sums{work, place, also_rows, {work, place}};
#pragma unroll
  for (int i = 0; i < kValues; ++i)
    sums.mean[i] = place.lane < place.lanes ? work.numbers[place.channel(i)] : 0.0f;  // kNormMean is the first
  constexpr int kRows = rows_at_once(kAlso == Also::none ? 2 : 3);
  long row = place.row;
  for (; row + (kRows - 1) * place.lanes < place.end; row += kRows * place.lanes) sums.template take<kRows>(row);
  for (; row < place.end; row += place.lanes) sums.template take<1>(row);
  write_sums_of_part(place, sums.totals, work.x.channels, work.parts);
}

/// Adds up the parts to the gradients of weight and bias, and to the slopes with which dx is linear in the masked
/// gradient and in x: dx = slopes[0] * gradient + slopes[1] * x + slopes[2]. With 16 bits of x no digit is lost by not
/// subtracting the mean first: x has fewer digits than the float that multiplies it.
__global__ void __launch_bounds__(kSumThreads) norm_slopes_kernel(NormQuantizationGradient work, int count) {
  const JoinedChannel joined(work.x.channels);
  const TwoSums all = joined.sums(work.parts, count);
  if (!joined.is_first()) return;
  const int c = joined.channel, channels = work.x.channels;
  const double mean = work.numbers[c], factor = work.numbers[static_cast<long>(kNormFactor) * channels + c];
  const auto rows = static_cast<double>(work.x.rows);
  const double of_gradient = work.weight[c] * factor;
  const double of_x = -of_gradient * factor * factor * (all.second / rows);
  work.dbias[c] = static_cast<float>(all.first);
  work.dweight[c] = static_cast<float>(all.second * factor);
  work.slopes[c] = static_cast<float>(of_gradient);
  work.slopes[channels + c] = static_cast<float>(of_x);
  work.slopes[2L * channels + c] = static_cast<float>(-of_x * mean - of_gradient * (all.first / rows));
}

/// Writes dx of a thread's channels.
template <class T, Also kAlso, bool kMasked, bool kFunction>
struct InputGradients {
  const NormQuantizationGradient& work;
  const Place<kValues>& place;
  const FastDivide& also_rows;
  Slope<T, kFunction> slope;
  Pack<float, kValues> of_gradient, of_x, offset;

  template <int kRows>
  __device__ void take(long first) const {
    MaskedGradient<T, kAlso> masked[kRows];
    Pack<T, kValues> x[kRows], kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const long row = first + r * place.lanes, at = place.at(row);
      if constexpr (kMasked) {
        kept[r] = load_last(static_cast<const T*>(work.masked) + at);
      } else {
        masked[r].template read<true>(work, place, also_rows, row);
      }
      x[r] = load_last(static_cast<const T*>(work.x.x) + at);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float gradient[kValues], value[kValues];
      if constexpr (kMasked) {
        widen_to(gradient, kept[r]);
      } else {
        masked[r].get(gradient);
      }
      widen_to(value, x[r]);
      slope.multiply(gradient, value);
#pragma unroll
      for (int i = 0; i < kValues; ++i)
        gradient[i] = fmaf(of_gradient.value[i], gradient[i], fmaf(of_x.value[i], value[i], offset.value[i]));
      store<kValues, true>(narrowed<T>(gradient), static_cast<T*>(work.dx) + place.at(first + r * place.lanes),
                           kValues);
    }
  }
};

/// The parts are taken in descending order, since the last rows are still in the cache.
template <class T, Also kAlso, bool kMasked, bool kFunction>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kFunction))
    norm_input_gradient_kernel(NormQuantizationGradient work, FastDivide also_rows, long part_rows) {
  const Place<kValues> place(work.x, gridDim.x - 1 - blockIdx.x, part_rows);
  const Slope<T, kFunction> of_function(work, place);
  if (place.lane >= place.lanes) return;
  const auto slope = [&](int which) { return numbers_at(work.slopes, which, work.x.channels, place.column * kValues); };
  const InputGradients<T, kAlso, kMasked, kFunction> gradients{work,     place,    also_rows, of_function,
                                                               slope(0), slope(1), slope(2)};
  constexpr int kRows = rows_at_once(kAlso == Also::none ? 2 : 3);
  long row = place.row;
  for (; row + (kRows - 1) * place.lanes < place.end; row += kRows * place.lanes) gradients.template take<kRows>(row);
  for (; row < place.end; row += place.lanes) gradients.template take<1>(row);
}

/// Launches both passes and what joins the parts between them.
template <class T, Also kAlso, bool kMasked, bool kFunction>
void launch(const NormQuantizationGradient& work, CudaStream stream) {
  const BatchNormShare& x = work.x;
  const FastDivide also_rows(static_cast<uint32_t>(work.also_rows));
  constexpr long kBlocks = kFunction ? kSmallWave : kWave;
  const long sum_rows = rows_of_part(x.rows, x.channels, 2 * kBlocks, kBlocks);
  norm_gradient_sums_kernel<T, kAlso, kMasked, kFunction>
      <<<blocks_of<kValues>(x, sum_rows), kThreads, 0, stream>>>(work, also_rows, sum_rows);
  check_launch("norm_quantize_gradient's sums");
  norm_slopes_kernel<<<blocks_for(x.channels, kSumChannels), kSumThreads, 0, stream>>>(work,
                                                                                       parts_of(x.rows, sum_rows));
  check_launch("norm_quantize_gradient's slopes");
  const long part_rows = rows_of_part(x.rows, x.channels, 4 * kBlocks, kBlocks);
  norm_input_gradient_kernel<T, kMasked ? Also::none : kAlso, kMasked, kFunction>
      <<<blocks_of<kValues>(x, part_rows), kThreads, 0, stream>>>(work, also_rows, part_rows);
  check_launch("norm_quantize_gradient");
}

template <class T, bool kMasked, bool kFunction>
void launch(const NormQuantizationGradient& work, CudaStream stream) {
  if (work.also == nullptr) {
    launch<T, Also::none, kMasked, kFunction>(work, stream);
  } else if (work.also_rows == 1) {
    launch<T, Also::rows, kMasked, kFunction>(work, stream);
  } else {
    launch<T, Also::shared, kMasked, kFunction>(work, stream);
  }
}

template <class T>
void launch(const NormQuantizationGradient& work, CudaStream stream) {
  if (work.function != nullptr) {
    launch<T, false, true>(work, stream);
  } else if (work.masked != nullptr) {
    launch<T, true, false>(work, stream);
  } else {
    launch<T, false, false>(work, stream);
  }
}

}  // namespace

void cuda_norm_quantize_gradient(const NormQuantizationGradient& work, CudaStream stream) {
  const bool wide = is_wide(work.x, work.dy, work.dx) && is_aligned(work.also) && is_aligned(work.masked) &&
                    is_aligned(work.numbers) && is_aligned(work.slopes);
  require_fits(wide, work.function, work.masked);
  if (work.also_rows < 1 || (work.also_rows != 1 && work.x.rows >= 1L << 31))
    throw promise_error("norm_quantize: a gradient is shared by one row or more, of fewer than 2^31");
  with_half(work.x.type, [&](auto type) { launch<decltype(type)>(work, stream); });
}

}  // namespace octet::kernels
