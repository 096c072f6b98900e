// SPDX-License-Identifier: Apache-2.0
// How BatchNorm's passes over rows of channels are spread over blocks and threads, and how sums by channel are joined.
// Include it in .cu files only.
#pragma once

#include <algorithm>

#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"
#include "kernels/training/batch_norm.h"

namespace octet::kernels::batch_norm {

constexpr int kThreads = 256;
constexpr int kValues = 8;      // neighbouring channels of a thread, where memory allows it
constexpr int kColumns = 32;    // the most threads of a block on one row; the others take other rows
constexpr int kRowsAtOnce = 4;  // rows loaded before any is used
constexpr long kMostBlocks = 1056,
               kMostPlainBlocks = 2112;  // twice and four times what 132 multiprocessors run at a time
constexpr long kValuesOfBlock = 16384;   // at least, so that there are far fewer parts than values
constexpr int kSumThreads = 256, kSumChannels = 8, kSumLanes = kSumThreads / kSumChannels;

/// Returns how many rows a part has.
inline long rows_of_part(long rows, int channels, long most_blocks) {
  const long across = blocks_for(channels, kColumns * kValues), values = rows * std::min(channels, kColumns * kValues);
  const long parts = std::clamp(values / kValuesOfBlock, 1L, std::max(1L, most_blocks / across));
  return (rows + parts - 1) / parts;
}

/// Returns how many parts there are.
inline int parts_of(long rows, long of_part) { return static_cast<int>((rows + of_part - 1) / of_part); }

/// What a thread works on: one column of kPack channels, in every lanes-th row of the block's part. Block (p, y) takes
/// part p of the rows and columns [y * kColumns, (y + 1) * kColumns).
template <int kPack>
struct Place {
  int width, lanes, lane, column, columns;
  int length;            ///< rows of the part
  long begin, end, row;  ///< the part's rows [begin, end), and this thread's first row

  __device__ Place(const BatchNormShare& share, long part, long part_rows) {
    columns = share.channels / kPack;
    const int first = static_cast<int>(blockIdx.y) * kColumns;
    width = min(columns - first, kColumns);
    lanes = kThreads / width;
    lane = static_cast<int>(threadIdx.x) / width;
    column = first + static_cast<int>(threadIdx.x) % width;
    begin = part * part_rows;
    end = min(begin + part_rows, share.rows);
    length = static_cast<int>(end - begin);
    row = lane < lanes ? begin + lane : end;  // end: too few threads for another row
  }
  __device__ int channel(int i) const { return column * kPack + i; }
  __device__ int first_channel() const { return static_cast<int>(blockIdx.y) * kColumns * kPack; }
  __device__ long at(long of_row) const { return (of_row * columns + column) * kPack; }
  /// Returns how many rows of the part lane l takes.
  __device__ int rows(int l) const { return length / lanes + (l < length % lanes ? 1 : 0); }

  /// Calls take(values of x, values of y, row) for this thread's rows in ascending order; y may be null.
  template <class T, class Take>
  __device__ void walk(const T* x, const T* y, const Take& take) const {
    const long step = lanes;
    long r = row;
    for (; r + (kRowsAtOnce - 1) * step < end; r += kRowsAtOnce * step) {
      Pack<T, kPack> a[kRowsAtOnce], b[kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        a[i] = load<kPack, true>(x + at(r + i * step), kPack);
        if (y != nullptr) b[i] = load<kPack, true>(y + at(r + i * step), kPack);
      }
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) take(a[i], b[i], r + i * step);
    }
    for (; r < end; r += step) {
      Pack<T, kPack> a = load<kPack, true>(x + at(r), kPack), b;
      if (y != nullptr) b = load<kPack, true>(y + at(r), kPack);
      take(a, b, r);
    }
  }
};

/// Returns whether a thread can take kValues channels.
inline bool is_wide(const BatchNormShare& share, const void* other, const void* out) {
  return share.channels % kValues == 0 && is_aligned(share.x) && is_aligned(other) && is_aligned(out);
}

/// Returns the grid of a pass.
template <int kPack>
dim3 blocks_of(const BatchNormShare& share, long part_rows) {
  return {static_cast<unsigned>(parts_of(share.rows, part_rows)), blocks_for(share.channels / kPack, kColumns)};
}

struct TwoSums {
  double first = 0, second = 0;
};

/// Returns the sums over the threads of one channel, to the thread of its first lane.
__device__ inline TwoSums sum_over_lanes(TwoSums mine) {
  __shared__ TwoSums of_warp[kSumThreads / 32][kSumChannels];
#pragma unroll
  for (int other = kSumChannels; other < 32; other *= 2) {
    mine.first += __shfl_xor_sync(0xffffffff, mine.first, other);
    mine.second += __shfl_xor_sync(0xffffffff, mine.second, other);
  }
  if (threadIdx.x % 32 < kSumChannels) of_warp[threadIdx.x / 32][threadIdx.x % 32] = mine;
  __syncthreads();
  if (threadIdx.x >= kSumChannels) return mine;
  for (int warp = 1; warp < kSumThreads / 32; ++warp) {
    mine.first += of_warp[warp][threadIdx.x].first;
    mine.second += of_warp[warp][threadIdx.x].second;
  }
  return mine;
}

}  // namespace octet::kernels::batch_norm
