// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/batch_norm.h"

#include "kernels/training/batch_norm_rows.cuh"

namespace octet::kernels {

using namespace batch_norm;

namespace {

/// Writes each part's mean, and its sum of squared differences from the mean, to parts [part][2][channels].
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

/// Joins the parts to the moments of the share.
__global__ void __launch_bounds__(kSumThreads)
    join_moments_kernel(const float* parts, int count, long rows, long part_rows, int channels, float* moments) {
  const JoinedChannel joined(channels);
  const TwoSums of_share = joined.moments(parts, count, rows, part_rows);
  if (!joined.is_first()) return;
  moments[joined.channel] = static_cast<float>(of_share.first);
  moments[channels + joined.channel] = static_cast<float>(of_share.second);
}

struct Moments {
  float mean, variance;
};

/// Returns the moments of a channel over all shares. NaN stays NaN.
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

/// Writes y. The parts are taken in descending order, since the last rows of x are still in the cache.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 4)
    normalize_kernel(BatchNormShare share, BatchNormForward forward, long part_rows) {
  const Place<kPack> place(share, gridDim.x - 1 - blockIdx.x, part_rows);
  if (place.lane >= place.lanes) return;
  const bool keeps = place.begin == 0 && place.lane == 0;  // one thread for each channel
  float gain[kPack], offset[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int c = place.channel(i);
    const Moments m = joined(forward.moments, forward.shares, share.channels, c);
    const float factor = 1.0f / sqrtf(m.variance + forward.epsilon);
    gain[i] = forward.weight[c] * factor;
    offset[i] = forward.bias[c] - m.mean * gain[i];
    if (!keeps) continue;
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

int batch_norm_parts(long rows, int channels) {
  return parts_of(rows, std::min(rows_of_part(rows, channels, kMostBlocks),
                                 rows_of_part(rows, channels, 2 * kSmallWave, kSmallWave)));
}

void cuda_batch_norm_part_moments(const BatchNormShare& share, float* parts, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostBlocks);
  with_pack<kValues>(share.type, is_wide(share, nullptr, nullptr), [&](auto type, auto pack) {
    moments_kernel<decltype(type), pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(  //
        share, part_rows, parts);
  });
  check_launch("batch_norm_moments");
}

void cuda_batch_norm_moments(const BatchNormShare& share, float* parts, float* moments, CudaStream stream) {
  cuda_batch_norm_part_moments(share, parts, stream);
  const long part_rows = rows_of_part(share.rows, share.channels, kMostBlocks);
  join_moments_kernel<<<blocks_for(share.channels, kSumChannels), kSumThreads, 0, stream>>>(
      parts, parts_of(share.rows, part_rows), share.rows, part_rows, share.channels, moments);
  check_launch("batch_norm_moments' sums");
}

void cuda_batch_norm_normalize(const BatchNormShare& share, const BatchNormForward& forward, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostPlainBlocks);
  with_pack<kValues>(share.type, is_wide(share, nullptr, forward.y), [&](auto type, auto pack) {
    normalize_kernel<decltype(type), pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(  //
        share, forward, part_rows);
  });
  check_launch("batch_norm_normalize");
}

namespace {

/// Writes each part's sums of dy and of dy * (x - mean) to parts [part][2][channels].
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 2)
    gradient_sums_kernel(BatchNormShare share, BatchNormBackward backward, long part_rows, float* parts) {
  const Place<kPack> place(share, blockIdx.x, part_rows);
  float mean[kPack], sums[2][kPack] = {};
#pragma unroll
  for (int i = 0; i < kPack; ++i) mean[i] = place.lane < place.lanes ? backward.kept[place.channel(i)] : 0.0f;
  place.walk(static_cast<const T*>(share.x), static_cast<const T*>(backward.dy),
             [&](const Pack<T, kPack>& x, const Pack<T, kPack>& dy, long) {
#pragma unroll
               for (int i = 0; i < kPack; ++i) {
                 sums[0][i] += widen(dy.value[i]);
                 sums[1][i] += widen(dy.value[i]) * (widen(x.value[i]) - mean[i]);
               }
             });
  write_sums_of_part(place, sums, share.channels, parts);
}

/// Adds up the parts and computes the gradients of weight and bias.
__global__ void __launch_bounds__(kSumThreads)
    join_gradients_kernel(const float* parts, int count, int channels, const float* kept, float* sums, float* dweight,
                          float* dbias) {
  const JoinedChannel joined(channels);
  const TwoSums all = joined.sums(parts, count);
  if (!joined.is_first()) return;
  const int channel = joined.channel;
  sums[channel] = static_cast<float>(all.first);
  sums[channels + channel] = static_cast<float>(all.second);
  dbias[channel] = static_cast<float>(all.first);
  dweight[channel] = static_cast<float>(all.second) * kept[channels + channel];
}

/// Writes dx, likewise in descending order of parts.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(BatchNormShare share, BatchNormBackward backward,
                                                               const float* sums, int shares, long part_rows, T* dx) {
  const Place<kPack> place(share, gridDim.x - 1 - blockIdx.x, part_rows);
  if (place.lane >= place.lanes) return;
  const float count = static_cast<float>(share.rows) * static_cast<float>(shares);
  InputGradient gradients[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int c = place.channel(i);
    float of_dy = 0, of_product = 0;
    for (int s = 0; s < shares; ++s) {
      of_dy += sums[2L * s * share.channels + c];
      of_product += sums[(2L * s + 1) * share.channels + c];
    }
    gradients[i] = {of_dy / count, of_product / count, backward.kept[c], backward.kept[share.channels + c],
                    backward.weight[c]};
  }
  place.walk(static_cast<const T*>(share.x), static_cast<const T*>(backward.dy),
             [&](Pack<T, kPack> values, const Pack<T, kPack>& dy, long row) {
#pragma unroll
               for (int i = 0; i < kPack; ++i)
                 values.value[i] = narrow<T>(gradients[i](widen(dy.value[i]), widen(values.value[i])));
               store<kPack, true>(values, dx + place.at(row), kPack);
             });
}

}  // namespace

void cuda_batch_norm_gradient_sums(const BatchNormShare& share, const BatchNormBackward& backward, float* parts,
                                   float* sums, float* dweight, float* dbias, CudaStream stream) {
  const long part_rows = rows_of_part(share.rows, share.channels, kMostBlocks);
  with_pack<kValues>(share.type, is_wide(share, backward.dy, nullptr), [&](auto type, auto pack) {
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
  with_pack<kValues>(share.type, is_wide(share, backward.dy, dx), [&](auto type, auto pack) {
    using T = decltype(type);
    gradient_kernel<T, pack()><<<blocks_of<pack()>(share, part_rows), kThreads, 0, stream>>>(
        share, backward, sums, shares, part_rows, static_cast<T*>(dx));
  });
  check_launch("batch_norm_gradient");
}

}  // namespace octet::kernels
