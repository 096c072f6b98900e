#include "kernels/batch_norm/cuda_batch_norm.h"
#include "kernels/batch_norm/input_gradient.h"
#include "kernels/batch_norm/rows.cuh"

namespace octet::kernels {

using namespace batch_norm;

namespace {

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
