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
constexpr long kWave = 528;     // blocks that 132 multiprocessors run at a time, four each
constexpr long kMostBlocks = 2 * kWave, kMostPlainBlocks = 4 * kWave;
constexpr long kSmallWave = 396;        // the same of kernels that have room for three
constexpr long kValuesOfBlock = 16384;  // at least, so that there are far fewer parts than values
constexpr int kSumThreads = 1024, kSumChannels = 8, kSumLanes = kSumThreads / kSumChannels;

/// Returns how many rows a part has. More blocks than a wave are as many whole waves, so that all end together.
inline long rows_of_part(long rows, int channels, long most_blocks, long wave = kWave) {
  const long across = blocks_for(channels, kColumns * kValues), values = rows * std::min(channels, kColumns * kValues);
  const long blocks = std::min(values / kValuesOfBlock * across, most_blocks);
  const long parts = std::max((blocks > wave ? blocks / wave * wave : blocks) / across, 1L);
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

/// The channel of a thread of a kernel that joins parts; those of the first lane have all of it in the end. Its blocks
/// have kSumThreads threads and kSumChannels channels each.
struct JoinedChannel {
  int channels, channel, lane;

  __device__ explicit JoinedChannel(int all)
      : channels(all),
        channel(static_cast<int>(blockIdx.x) * kSumChannels + static_cast<int>(threadIdx.x) % kSumChannels),
        lane(static_cast<int>(threadIdx.x) / kSumChannels) {}
  __device__ bool is_first() const { return lane == 0 && channel < channels; }
  __device__ const float* in(const float* parts) const { return parts + min(channel, channels - 1); }

  /// Returns, to the first lane, the sums over the parts [count, 2, channels].
  __device__ TwoSums sums(const float* parts, int count) const {
    const float* const of_channel = in(parts);
    TwoSums all;
#pragma unroll 8
    for (int p = lane; p < count; p += kSumLanes) {
      all.first += of_channel[2L * p * channels];
      all.second += of_channel[(2L * p + 1) * channels];
    }
    return sum_over_lanes(all);
  }

  /// Returns, to the first lane, mean (first) and variance (second) of all rows from those of the parts.
  __device__ TwoSums moments(const float* parts, int count, long rows, long part_rows) const {
    const float* const of_channel = in(parts);
    const double about = *of_channel;
    TwoSums all;
#pragma unroll 8
    for (int p = lane; p < count; p += kSumLanes) {
      const auto of_part = static_cast<double>(min(part_rows, rows - p * part_rows));
      const double distance = of_channel[2L * p * channels] - about;
      all.first += of_part * distance;
      all.second += of_part * distance * distance + of_channel[(2L * p + 1) * channels];
    }
    all = sum_over_lanes(all);
    const double moved = all.first / static_cast<double>(rows);
    const double variance = all.second / static_cast<double>(rows) - moved * moved;
    return {about + moved, variance < 0 ? 0.0 : variance};  // max() would take NaN for 0
  }
};

/// Adds up kSums sums a channel of a block's threads and writes them to the block's part of parts
/// [part][kSums][channels].
template <int kSums, int kPack>
__device__ void write_sums_of_part(const Place<kPack>& place, const float (&sums)[kSums][kPack], int channels,
                                   float* parts) {
  __shared__ float of_thread[kSums][kThreads * kPack];
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int i = 0; i < kPack; ++i) of_thread[s][threadIdx.x * kPack + i] = sums[s][i];
  __syncthreads();
  const int stride = place.width * kPack;
  for (int c = static_cast<int>(threadIdx.x); c < stride; c += kThreads) {
    float total[kSums] = {};
    for (int l = 0; l < place.lanes; ++l)
#pragma unroll
      for (int s = 0; s < kSums; ++s) total[s] += of_thread[s][l * stride + c];
    float* const part = parts + static_cast<long>(kSums) * blockIdx.x * channels + place.first_channel() + c;
#pragma unroll
    for (int s = 0; s < kSums; ++s) part[s * channels] = total[s];
  }
}

}  // namespace octet::kernels::batch_norm
