#include "kernels/batch_norm/cuda_batch_norm.h"

#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;      // a thread's of a row, where rows allow it
constexpr int kColumns = 32;    // of so many threads beside each other, the others lie over rows
constexpr int kRowsAtOnce = 4;  // loaded before any is used
constexpr long kMostBlocks = 1056,
               kMostPlainBlocks = 2112;  // twice and four times what 132 multiprocessors run at once
constexpr long kValuesOfBlock = 16384;   // at least, so that parts are few against the values
constexpr int kSumThreads = 256, kSumChannels = 8, kSumLanes = kSumThreads / kSumChannels;

long rows_of_part(long rows, int channels, long most_blocks) {
  const long across = blocks_for(channels, kColumns * kValues), values = rows * std::min(channels, kColumns * kValues);
  const long parts = std::clamp(values / kValuesOfBlock, 1L, std::max(1L, most_blocks / across));
  return (rows + parts - 1) / parts;
}

int parts_of(long rows, long of_part) { return static_cast<int>((rows + of_part - 1) / of_part); }

/// What a thread takes: one column of kPack channels, every lanes-th row of the block's part. Block (p, y): part p of
/// the rows, columns [y * kColumns, (y + 1) * kColumns).
template <int kPack>
struct Place {
  int width, lanes, lane, column, columns;
  int length;            // rows of the part
  long begin, end, row;  // of the part; this thread's first row

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
    row = lane < lanes ? begin + lane : end;  // end: no room for another row
  }
  __device__ int channel(int i) const { return column * kPack + i; }
  __device__ int first_channel() const { return static_cast<int>(blockIdx.y) * kColumns * kPack; }
  __device__ long at(long of_row) const { return (of_row * columns + column) * kPack; }
  /// Rows of the part that lane l has.
  __device__ int rows(int l) const { return length / lanes + (l < length % lanes ? 1 : 0); }

  /// take(values of x, values of y, row) for this thread's rows in ascending order; y may be null.
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

/// parts [part][2][channels]: mean, and sum of squares of what is left without it.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 4) moments_kernel(BatchNormShare share, long part_rows, float* parts) {
  __shared__ float means[kThreads * kPack], squares[kThreads * kPack];
  const Place<kPack> place(share, blockIdx.x, part_rows);
  const T* const x = static_cast<const T*>(share.x);
  float shift[kPack] = {}, sum[kPack] = {}, square[kPack] = {};
  if (place.row < place.end) {
    const Pack<T, kPack> first = load<kPack, true>(x + place.at(place.row), kPack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) shift[i] = widen(first.value[i]);
  }
  place.walk(x, static_cast<const T*>(nullptr), [&](const Pack<T, kPack>& values, const Pack<T, kPack>&, long) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float value = widen(values.value[i]) - shift[i];
      sum[i] += value;
      square[i] += value * value;
    }
  });
  const float count = static_cast<float>(max(place.rows(place.lane), 1));
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    means[threadIdx.x * kPack + i] = shift[i] + sum[i] / count;
    squares[threadIdx.x * kPack + i] = square[i] - sum[i] * (sum[i] / count);
  }
  __syncthreads();
  const int stride = place.width * kPack;
  for (int c = static_cast<int>(threadIdx.x); c < stride; c += kThreads) {
    const float about = means[c];
    float moved = 0, total = 0;
    for (int l = 0; l < place.lanes; ++l) {
      const float rows = static_cast<float>(place.rows(l)), distance = means[l * stride + c] - about;
      if (rows == 0) break;
      moved += rows * distance;
      total += squares[l * stride + c] + rows * distance * distance;
    }
    moved /= static_cast<float>(place.length);
    float* const part = parts + 2L * blockIdx.x * share.channels + place.first_channel() + c;
    part[0] = about + moved;
    part[share.channels] = total - moved * moved * static_cast<float>(place.length);
  }
}

struct TwoSums {
  double first = 0, second = 0;
};

/// Of the threads of one channel, for the thread of its first lane.
__device__ TwoSums sum_over_lanes(TwoSums mine) {
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

__global__ void __launch_bounds__(kSumThreads)
    join_moments_kernel(const float* parts, int count, long rows, long part_rows, int channels, float* moments) {
  const int channel = static_cast<int>(blockIdx.x) * kSumChannels + static_cast<int>(threadIdx.x) % kSumChannels;
  const float* const of_channel = parts + min(channel, channels - 1);
  const double about = *of_channel;
  TwoSums sums;
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x) / kSumChannels; p < count; p += kSumLanes) {
    const auto of_part = static_cast<double>(min(part_rows, rows - p * part_rows));
    const double distance = of_channel[2L * p * channels] - about;
    sums.first += of_part * distance;
    sums.second += of_part * distance * distance + of_channel[(2L * p + 1) * channels];
  }
  sums = sum_over_lanes(sums);
  if (threadIdx.x >= kSumChannels || channel >= channels) return;
  const double moved = sums.first / static_cast<double>(rows);
  moments[channel] = static_cast<float>(about + moved);
  const double variance = sums.second / static_cast<double>(rows) - moved * moved;
  moments[channels + channel] = static_cast<float>(variance < 0 ? 0.0 : variance);  // max() would take NaN for 0
}

struct Moments {
  float mean, variance;
};

/// Of all shares. NaN stays NaN.
__device__ Moments joined(const float* moments, int shares, int channels, int channel) {
  float mean = 0, variance = 0;
  for (int s = 0; s < shares; ++s) mean += moments[2L * s * channels + channel];
  mean /= static_cast<float>(shares);
  for (int s = 0; s < shares; ++s) {
    const float distance = moments[2L * s * channels + channel] - mean;
    variance += moments[(2L * s + 1) * channels + channel] + distance * distance;
  }
  return {mean, variance / static_cast<float>(shares)};
}

/// The parts in descending order: the last rows of x are those that the pass before has left in the cache.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_kernel(BatchNormShare share, BatchNormForward forward, long part_rows) {
  const Place<kPack> place(share, gridDim.x - 1 - blockIdx.x, part_rows);
  if (place.lane >= place.lanes) return;
  const bool tells = place.begin == 0 && place.lane == 0;
  float gain[kPack], offset[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int c = place.channel(i);
    const Moments m = joined(forward.moments, forward.shares, share.channels, c);
    const float factor = 1.0f / sqrtf(m.variance + forward.epsilon);
    gain[i] = forward.weight[c] * factor;
    offset[i] = forward.bias[c] - m.mean * gain[i];
    if (!tells) continue;
    forward.kept[c] = m.mean;
    forward.kept[share.channels + c] = factor;
    const double count = static_cast<double>(share.rows) * forward.shares;
    const auto unbiased = static_cast<float>(m.variance * (count / (count - 1)));
    forward.running_mean[c] += forward.momentum * (m.mean - forward.running_mean[c]);
    forward.running_var[c] += forward.momentum * (unbiased - forward.running_var[c]);
  }
  T* const y = static_cast<T*>(forward.y);
  place.walk(static_cast<const T*>(share.x), static_cast<const T*>(nullptr),
             [&](Pack<T, kPack> values, const Pack<T, kPack>&, long row) {
#pragma unroll
               for (int i = 0; i < kPack; ++i)
                 values.value[i] = narrow<T>(fmaf(widen(values.value[i]), gain[i], offset[i]));
               store<kPack, true>(values, y + place.at(row), kPack);
             });
}

/// parts [part][2][channels].
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 2)
    gradient_sums_kernel(BatchNormShare share, BatchNormBackward backward, long part_rows, float* parts) {
  __shared__ float gradients[kThreads * kPack], products[kThreads * kPack];
  const Place<kPack> place(share, blockIdx.x, part_rows);
  float mean[kPack], gradient[kPack] = {}, product[kPack] = {};
#pragma unroll
  for (int i = 0; i < kPack; ++i) mean[i] = place.lane < place.lanes ? backward.kept[place.channel(i)] : 0.0f;
  place.walk(static_cast<const T*>(share.x), static_cast<const T*>(backward.dy),
             [&](const Pack<T, kPack>& x, const Pack<T, kPack>& dy, long) {
#pragma unroll
               for (int i = 0; i < kPack; ++i) {
                 gradient[i] += widen(dy.value[i]);
                 product[i] += widen(dy.value[i]) * (widen(x.value[i]) - mean[i]);
               }
             });
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    gradients[threadIdx.x * kPack + i] = gradient[i];
    products[threadIdx.x * kPack + i] = product[i];
  }
  __syncthreads();
  const int stride = place.width * kPack;
  for (int c = static_cast<int>(threadIdx.x); c < stride; c += kThreads) {
    float first = 0, second = 0;
    for (int l = 0; l < place.lanes; ++l) {
      first += gradients[l * stride + c];
      second += products[l * stride + c];
    }
    float* const part = parts + 2L * blockIdx.x * share.channels + place.first_channel() + c;
    part[0] = first;
    part[share.channels] = second;
  }
}

__global__ void __launch_bounds__(kSumThreads)
    join_gradients_kernel(const float* parts, int count, int channels, const float* kept, float* sums, float* dweight,
                          float* dbias) {
  const int channel = static_cast<int>(blockIdx.x) * kSumChannels + static_cast<int>(threadIdx.x) % kSumChannels;
  const float* const of_channel = parts + min(channel, channels - 1);
  TwoSums all;
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x) / kSumChannels; p < count; p += kSumLanes) {
    all.first += of_channel[2L * p * channels];
    all.second += of_channel[(2L * p + 1) * channels];
  }
  all = sum_over_lanes(all);
  if (threadIdx.x >= kSumChannels || channel >= channels) return;
  sums[channel] = static_cast<float>(all.first);
  sums[channels + channel] = static_cast<float>(all.second);
  dbias[channel] = static_cast<float>(all.first);
  dweight[channel] = static_cast<float>(all.second) * kept[channels + channel];
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(BatchNormShare share, BatchNormBackward backward,
                                                               const float* sums, int shares, long part_rows, T* dx) {
  const Place<kPack> place(share, gridDim.x - 1 - blockIdx.x, part_rows);
  if (place.lane >= place.lanes) return;
  const float count = static_cast<float>(share.rows) * static_cast<float>(shares);
  float of_dy[kPack], of_x[kPack], offset[kPack];  // dx = of_dy * dy - of_x * x + offset
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int c = place.channel(i);
    float gradient = 0, product = 0;
    for (int s = 0; s < shares; ++s) {
      gradient += sums[2L * s * share.channels + c];
      product += sums[(2L * s + 1) * share.channels + c];
    }
    const float factor = backward.kept[share.channels + c];
    of_dy[i] = backward.weight[c] * factor;
    of_x[i] = of_dy[i] * (product / count) * factor * factor;
    offset[i] = of_x[i] * backward.kept[c] - of_dy[i] * (gradient / count);
  }
  place.walk(static_cast<const T*>(share.x), static_cast<const T*>(backward.dy),
             [&](Pack<T, kPack> values, const Pack<T, kPack>& dy, long row) {
#pragma unroll
               for (int i = 0; i < kPack; ++i)
                 values.value[i] =
                     narrow<T>(fmaf(of_dy[i], widen(dy.value[i]), fmaf(-of_x[i], widen(values.value[i]), offset[i])));
               store<kPack, true>(values, dx + place.at(row), kPack);
             });
}

/// Calls f with a value of the C++ type and the number of neighbouring channels a thread takes.
template <class F>
void with_pack(const BatchNormShare& share, const void* other, const void* out, const F& f) {
  const bool wide = share.channels % kValues == 0 && is_aligned(share.x) && is_aligned(other) && is_aligned(out);
  with_type(share.type, [&](auto type) {
    if (wide) {
      f(type, std::integral_constant<int, kValues>());
    } else {
      f(type, std::integral_constant<int, 1>());
    }
  });
}

template <int kPack>
dim3 blocks_of(const BatchNormShare& share, long part_rows) {
  return {static_cast<unsigned>(parts_of(share.rows, part_rows)), blocks_for(share.channels / kPack, kColumns)};
}

}  // namespace

int batch_norm_parts(long rows, int channels) { return parts_of(rows, rows_of_part(rows, channels, kMostBlocks)); }

void cuda_batch_norm_moments(const BatchNormShare& share, float* parts, float* moments, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostBlocks);
  with_pack(share, nullptr, nullptr, [&](auto type, auto pack) {
    moments_kernel<decltype(type), pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(  //
        share, part_rows, parts);
  });
  check_launch("batch_norm_moments");
  join_moments_kernel<<<blocks_for(share.channels, kSumChannels), kSumThreads, 0, stream>>>(
      parts, parts_of(share.rows, part_rows), share.rows, part_rows, share.channels, moments);
  check_launch("batch_norm_moments' sums");
}

void cuda_batch_norm_normalize(const BatchNormShare& share, const BatchNormForward& forward, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostPlainBlocks);
  with_pack(share, nullptr, forward.y, [&](auto type, auto pack) {
    normalize_kernel<decltype(type), pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(  //
        share, forward, part_rows);
  });
  check_launch("batch_norm_normalize");
}

void cuda_batch_norm_gradient_sums(const BatchNormShare& share, const BatchNormBackward& backward, float* parts,
                                   float* sums, float* dweight, float* dbias, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostBlocks);
  with_pack(share, backward.dy, nullptr, [&](auto type, auto pack) {
    gradient_sums_kernel<decltype(type), pack()>
        <<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(share, backward, part_rows, parts);
  });
  check_launch("batch_norm_gradient_sums");
  join_gradients_kernel<<<blocks_for(share.channels, kSumChannels), kSumThreads, 0, stream>>>(
      parts, parts_of(share.rows, part_rows), share.channels, backward.kept, sums, dweight, dbias);
  check_launch("batch_norm_gradient_sums' sums");
}

void cuda_batch_norm_gradient(const BatchNormShare& share, const BatchNormBackward& backward, const float* sums,
                              int shares, void* dx, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostPlainBlocks);
  with_pack(share, backward.dy, dx, [&](auto type, auto pack) {
    using T = decltype(type);
    gradient_kernel<T, pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(
        share, backward, sums, shares, part_rows, static_cast<T*>(dx));
  });
  check_launch("batch_norm_gradient");
}

}  // namespace octet::kernels
