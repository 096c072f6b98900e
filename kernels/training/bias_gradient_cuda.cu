// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/fake_quantize.h"

#include <algorithm>

#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"
#include "kernels/training/learned_range.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;      // neighbouring channels of a thread, where memory allows it
constexpr int kRowsAtOnce = 4;  // rows loaded before any is stored: dx may be dy
constexpr int kBlocksPerMultiprocessor = 4;
constexpr long kMostParts = 528;       // as many blocks as 132 multiprocessors run at a time
constexpr long kValuesOfPart = 32768;  // at least, so that there are far fewer parts than values
constexpr int kSumChannels = 32, kSumLanes = 32;

/// Returns how many rows a part has.
long rows_of_part(long rows, int channels) {
  const long parts = std::clamp(rows * channels / kValuesOfPart, 1L, std::min(rows, kMostParts));
  return (rows + parts - 1) / parts;
}

/// A thread's column of the rows: kPack neighbouring channels. kSums is ScaleGradient::sums(), or kCodes where codes
/// tell what passes.
constexpr int kCodes = -1;
template <class T, int kPack, int kSums>
struct Column {
  const BiasGradient& work;
  const T* dy;
  T* dx;
  EndSlopes slope;
  long columns, column;
  float sum[kPack] = {};
  float dscale = 0, doffset = 0;

  /// Returns a bit for each channel through which the gradient passes.
  __device__ unsigned passing(long row) const {
    const long at = row * columns + column;
    if constexpr (kSums != kCodes) return kPack == 8 ? work.bits[at] : work.bits[at / 8] >> (at % 8);
    const uint8_t* const first = work.codes + row * work.code_stride + column * kPack;
    const Pack<uint8_t, kPack> codes = *reinterpret_cast<const Pack<uint8_t, kPack>*>(first);
    unsigned pass = 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int32_t code = work.signed_codes ? static_cast<int8_t>(codes.value[i]) : codes.value[i];
      pass |= static_cast<unsigned>(code > work.code_below && code < work.code_above) << i;
    }
    return pass;
  }

  /// Takes kRows rows, from `first` on and `step` apart.
  template <int kRows>
  __device__ void take(long first, long step) {
    Pack<T, kPack> pack[kRows], also[kRows];
    Pack<int16_t, kPack> steep[kRows];
    unsigned pass[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const long row = first + r * step, at = (row * columns + column) * kPack;
      pack[r] = load<kPack, true>(dy + at, kPack);
      if constexpr (kSums == kCodes) {
        if (work.also != nullptr) also[r] = load<kPack, true>(static_cast<const T*>(work.also) + at, kPack);
      }
      pass[r] = passing(row);
      if constexpr (kSums > 0) steep[r] = *reinterpret_cast<const Pack<int16_t, kPack>*>(work.scale.slopes + at);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if constexpr (kSums == kCodes) {
          if (work.also != nullptr) pack[r].value[i] = narrow<T>(widen(pack[r].value[i]) + widen(also[r].value[i]));
        }
        if constexpr (kSums > 0) dscale += widen(pack[r].value[i]) * slope.unpack(steep[r].value[i]);
        if constexpr (kSums > 1) doffset += is_end(steep[r].value[i]) ? widen(pack[r].value[i]) : 0.0f;
        if ((pass[r] >> i & 1) == 0) pack[r].value[i] = narrow<T>(0.0f);
        sum[i] += widen(pack[r].value[i]);
      }
      store<kPack, true>(pack[r], dx + ((first + r * step) * columns + column) * kPack, kPack);
    }
  }
};

/// Block (p, y) takes part p of the rows and columns [y * kThreads, (y + 1) * kThreads). Its threads are spread over
/// the columns, and over as many rows as there are threads for.
template <class T, int kPack, int kSums>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    bias_gradient_kernel(BiasGradient work, long part_rows) {
  __shared__ float sums[kThreads * kPack];
  const int columns = work.channels / kPack, first_column = static_cast<int>(blockIdx.y) * kThreads;
  const int width = min(columns - first_column, kThreads), lanes = kThreads / width;
  const int lane = static_cast<int>(threadIdx.x) / width;
  const ScaleGradient& scale = work.scale;
  Column<T, kPack, kSums> mine{work,
                               static_cast<const T*>(work.dy),
                               static_cast<T*>(work.dx),
                               scale.ends(),
                               columns,
                               first_column + static_cast<int>(threadIdx.x) % width};
  const long end = min((blockIdx.x + 1) * part_rows, work.rows);
  long row = blockIdx.x * part_rows + lane;
  if (lane >= lanes) row = end;  // too few threads for another row: idle
  for (; row + (kRowsAtOnce - 1) * lanes < end; row += kRowsAtOnce * lanes) mine.template take<kRowsAtOnce>(row, lanes);
  for (; row < end; row += lanes) mine.template take<1>(row, 0);
#pragma unroll
  for (int i = 0; i < kPack; ++i) sums[threadIdx.x * kPack + i] = mine.sum[i];
  __syncthreads();
  float* part = work.parts + static_cast<long>(blockIdx.x) * work.channels + first_column * kPack;
  for (int channel = threadIdx.x; channel < width * kPack; channel += kThreads) {
    float total = 0;
    for (int l = 0; l < lanes; ++l) total += sums[l * width * kPack + channel];
    part[channel] = total;
  }
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  if constexpr (kSums > 0) write_part<kThreads>(mine.dscale, scale.parts + block);
  if constexpr (kSums > 1) write_part<kThreads>(mine.doffset, scale.parts + gridDim.x * gridDim.y + block);
}

/// Adds up the parts of kSumChannels channels.
__global__ void __launch_bounds__(kSumChannels* kSumLanes)
    sum_parts_kernel(const float* parts, int count, int channels, float* dbias) {
  __shared__ float sums[kSumLanes][kSumChannels];
  const int channel = static_cast<int>(blockIdx.x) * kSumChannels + static_cast<int>(threadIdx.x);
  float total = 0;
  if (channel < channels) {
#pragma unroll 8
    for (int p = threadIdx.y; p < count; p += kSumLanes) total += parts[static_cast<long>(p) * channels + channel];
  }
  sums[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int lane = 1; lane < kSumLanes; ++lane) total += sums[lane][threadIdx.x];
  dbias[channel] = total;
}

/// Launches bias_gradient_kernel() and returns its number of blocks.
template <class T, int kPack>
int launch(const BiasGradient& work, int parts, CudaStream stream) {
  const dim3 blocks(static_cast<unsigned>(parts), blocks_for(work.channels / kPack, kThreads));
  const long part_rows = rows_of_part(work.rows, work.channels);
  switch (work.codes != nullptr ? kCodes : work.scale.sums()) {
    case kCodes:
      bias_gradient_kernel<T, kPack, kCodes><<<blocks, kThreads, 0, stream>>>(work, part_rows);
      break;
    case 0:
      bias_gradient_kernel<T, kPack, 0><<<blocks, kThreads, 0, stream>>>(work, part_rows);
      break;
    case 1:
      bias_gradient_kernel<T, kPack, 1><<<blocks, kThreads, 0, stream>>>(work, part_rows);
      break;
    default:
      bias_gradient_kernel<T, kPack, 2><<<blocks, kThreads, 0, stream>>>(work, part_rows);
  }
  return static_cast<int>(blocks.x * blocks.y);
}

}  // namespace

int bias_gradient_parts(long rows, int channels) {
  if (rows == 0) return 0;
  const long of_part = rows_of_part(rows, channels);
  return static_cast<int>((rows + of_part - 1) / of_part);
}

int bias_gradient_scale_parts(long rows, int channels) {
  return bias_gradient_parts(rows, channels) * static_cast<int>(blocks_for(channels, kThreads));
}

void cuda_bias_gradient(const BiasGradient& work, CudaStream stream) {
  if (work.channels == 0) return;
  int blocks = 0;
  const int parts = bias_gradient_parts(work.rows, work.channels);
  if (parts > 0) {
    const bool wide = work.channels % kValues == 0 && is_aligned(work.dy) && is_aligned(work.dx) &&
                      is_aligned(work.also) && is_aligned(work.codes, kValues) && work.code_stride % kValues == 0;
    with_pack<kValues>(work.type, wide,
                       [&](auto type, auto pack) { blocks = launch<decltype(type), pack()>(work, parts, stream); });
    check_launch("bias_gradient");
  }
  sum_parts_kernel<<<blocks_for(work.channels, kSumChannels), dim3(kSumChannels, kSumLanes), 0, stream>>>(
      work.parts, parts, work.channels, work.dbias);
  check_launch("bias_gradient's sums");
  if (work.scale.dscale != nullptr) cuda_sum_scale_gradient(work.scale, blocks, stream);
}

}  // namespace octet::kernels
