// SPDX-License-Identifier: Apache-2.0
// The forward pass: a thread keeps the gains and offsets of eight channels in registers and walks down the rows. The
// pass that observes is in observe_cuda.cu.
#include "kernels/training/norm_quantize.cuh"

namespace octet::kernels {

using namespace batch_norm;
using namespace norm_quantize;

namespace {

/// Joins the parts to the numbers of each channel and moves the running statistics.
__global__ void __launch_bounds__(kSumThreads) norm_numbers_kernel(NormStatistics work, int count, long part_rows) {
  const JoinedChannel joined(work.x.channels);
  const TwoSums moments = joined.moments(work.parts, count, work.x.rows, part_rows);
  if (!joined.is_first()) return;
  const int c = joined.channel;
  const double factor = 1 / sqrt(moments.second + static_cast<double>(work.epsilon)), gain = work.weight[c] * factor;
  const auto write = [&](NormNumber number, double value) {
    work.numbers[static_cast<long>(number) * work.x.channels + c] = static_cast<float>(value);
  };
  write(kNormMean, moments.first);
  write(kNormFactor, factor);
  write(kNormGain, gain);
  write(kNormOffset, work.bias[c] - moments.first * gain);
  const auto rows = static_cast<double>(work.x.rows);
  const auto unbiased = static_cast<float>(moments.second * (rows / (rows - 1)));
  work.running_mean[c] += work.momentum * (static_cast<float>(moments.first) - work.running_mean[c]);
  work.running_var[c] += work.momentum * (unbiased - work.running_var[c]);
}

/// What follows BatchNorm.
enum class NormThen { nothing, residual, function };

/// Takes kRows rows of a thread's eight channels, from `first` on and place.lanes apart. `function`: values by place of
/// a code, in shared memory.
template <class T, NormThen kThen, int kRows>
__device__ void quantize_rows(const NormQuantization& work, const Place<kValues>& place, const Rounder& rounder,
                              const T* function, const Pack<float, kValues>& gain, const Pack<float, kValues>& offset,
                              long first) {
  constexpr bool kResidual = kThen == NormThen::residual;
  Pack<T, kValues> x[kRows], residual[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const long at = place.at(first + r * place.lanes);
    x[r] = load_last(static_cast<const T*>(work.x.x) + at);
    if constexpr (kResidual) residual[r] = load_last(static_cast<const T*>(work.residual) + at);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sum[kValues];
    widen_to(sum, x[r]);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] = fmaf(sum[i], gain.value[i], offset.value[i]);
    widen_to(sum, narrowed<T>(sum));
    if constexpr (kResidual) {
      float more[kValues];
      widen_to(more, residual[r]);
#pragma unroll
      for (int i = 0; i < kValues; ++i) sum[i] += more[i];
    }
    const long at = place.at(first + r * place.lanes);
    unsigned bits;
    if constexpr (kThen == NormThen::function) {
      bits = rounder.codes(sum);
      Pack<T, kValues> y;
#pragma unroll
      for (int i = 0; i < kValues; ++i) y.value[i] = function[rounder.place(sum[i])];
      store<kValues, true>(y, static_cast<T*>(work.y) + at, kValues);
    } else {
      bits = rounder.round(sum);
      store<kValues, true>(narrowed<T>(sum), static_cast<T*>(work.y) + at, kValues);
    }
    if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
  }
}

/// The parts are taken in descending order, since the last rows of x are still in the cache.
template <class T, NormThen kThen>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    norm_quantize_kernel(NormQuantization work, long part_rows) {
  const T* function = nullptr;
  if constexpr (kThen == NormThen::function) function = SharedColumn<T>(work.function->value).values;
  const Place<kValues> place(work.x, gridDim.x - 1 - blockIdx.x, part_rows);
  if (place.lane >= place.lanes) return;
  const Pack<float, kValues> gain = numbers_at(work.numbers, kNormGain, work.x.channels, place.column * kValues);
  const Pack<float, kValues> offset = numbers_at(work.numbers, kNormOffset, work.x.channels, place.column * kValues);
  const Rounder rounder(qparams_of(work), work.activation);
  constexpr int kRows = rows_at_once(kThen == NormThen::nothing ? 1 : 2);
  long row = place.row;
  for (; row + (kRows - 1) * place.lanes < place.end; row += kRows * place.lanes)
    quantize_rows<T, kThen, kRows>(work, place, rounder, function, gain, offset, row);
  for (; row < place.end; row += place.lanes)
    quantize_rows<T, kThen, 1>(work, place, rounder, function, gain, offset, row);
}

}  // namespace

void cuda_norm_statistics(const NormStatistics& work, CudaStream stream) {
  cuda_batch_norm_part_moments(work.x, work.parts, stream);
  const long part_rows = rows_of_part(work.x.rows, work.x.channels, kMostBlocks);
  norm_numbers_kernel<<<blocks_for(work.x.channels, kSumChannels), kSumThreads, 0, stream>>>(
      work, parts_of(work.x.rows, part_rows), part_rows);
  check_launch("norm_statistics");
}

void cuda_norm_quantize(const NormQuantization& work, CudaStream stream) {
  const long part_rows = rows_of_part(work.x.rows, work.x.channels, kMostPlainBlocks);
  require_fits(is_wide(work.x, work.residual, work.y) && is_aligned(work.numbers), work.function, work.residual);
  with_half(work.x.type, [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto then) {
      norm_quantize_kernel<T, then()><<<blocks_of<kValues>(work.x, part_rows), kThreads, 0, stream>>>(work, part_rows);
    };
    if (work.function != nullptr) {
      launch(std::integral_constant<NormThen, NormThen::function>());
    } else if (work.residual != nullptr) {
      launch(std::integral_constant<NormThen, NormThen::residual>());
    } else {
      launch(std::integral_constant<NormThen, NormThen::nothing>());
    }
  });
  check_launch("norm_quantize");
}

}  // namespace octet::kernels
