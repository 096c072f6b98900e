// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/two_of_four.h"

#include "kernels/core/launch.cuh"
#include "kernels/training/weight_table.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;

/// What applies to all weights of a launch.
struct Decay {
  float rate = 0;
};

/// A block works on one channel.
template <bool kDecays>
__global__ void __launch_bounds__(kThreads)
    two_of_four_kernel(const __grid_constant__ Table<SparseWeights, Decay> table) {
  const int t = table.tensor_of_block(static_cast<int>(blockIdx.x));
  const SparseWeights& weights = table.tensor[t];
  const int channel = static_cast<int>(blockIdx.x) - table.first_block[t];
  for (int group = static_cast<int>(threadIdx.x); group < weights.groups(); group += kThreads) {
    if constexpr (kDecays) {
      decay_pruned(weights, channel, group, table.rules.rate);
    } else {
      keep_two_of_four(weights, channel, group);
    }
  }
}

template <bool kDecays>
void launch(const Decay& decay, const SparseWeights* weights, int count, CudaStream stream) {
  const auto channels_of = [](const SparseWeights& tensor) { return tensor.channels; };
  for_each_table(decay, weights, count, channels_of, [&](const Table<SparseWeights, Decay>& table, int blocks) {
    two_of_four_kernel<kDecays><<<blocks, kThreads, 0, stream>>>(table);
    check_launch("two_of_four");
  });
}

}  // namespace

void cuda_keep_two_of_four(const SparseWeights* weights, int count, CudaStream stream) {
  launch<false>({}, weights, count, stream);
}

void cuda_decay_pruned(const SparseWeights* weights, int count, float rate, CudaStream stream) {
  launch<true>({rate}, weights, count, stream);
}

}  // namespace octet::kernels
