#include "kernels/batch_norm/cuda_batch_norm.h"

#include "kernels/batch_norm/rows.cuh"

namespace octet::kernels {

using namespace batch_norm;

namespace {

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

}  // namespace octet::kernels
