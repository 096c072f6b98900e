// SPDX-License-Identifier: Apache-2.0
// 2:4 sparsity: at most two of each group of four weights are not 0. A group is four consecutive input channels of one
// output channel at one position of the kernel: four neighbours in the int8 layout [K, R, S, C], along the dimension
// that a convolution sums over, as the sparse instructions of tensor cores (mma.sp, wgmma.sp) require. Inline functions
// are for host and device.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet::kernels {

inline constexpr int kGroup = 4, kKept = 2;  ///< weights of a group, and how many of them stay

/// A weight tensor of `channels` rows without gaps. A row is [inputs, taps] in PyTorch's order, or [taps, inputs] when
/// channels-last. `inputs`, a multiple of 4, counts the inputs of one convolution group; pixels before a flatten are
/// taps.
struct SparseWeights {
  const float* weight = nullptr;
  float* to = nullptr;  ///< written, in the same layout; may be `weight`
  int32_t channels = 0, inputs = 0, taps = 0;
  bool channels_last = false;

  OCTET_HOST_DEVICE int32_t groups() const { return inputs / kGroup * taps; }  ///< number of groups in a row
  OCTET_HOST_DEVICE long step() const { return channels_last ? 1 : taps; }  ///< from one value of a group to the next
  /// Returns the index of the first value of a group.
  OCTET_HOST_DEVICE long index(int32_t channel, int32_t group) const {
    const int32_t tap = group % taps, input = group / taps * kGroup;
    const long row = static_cast<long>(channel) * inputs * taps;
    return row + (channels_last ? static_cast<long>(tap) * inputs + input : static_cast<long>(input) * taps + tap);
  }
};

/// Returns the index of the first weight of the first group that breaks the rule, or -1. `weight` is [rows, inputs];
/// the last group of a row may have fewer than four weights.
inline int64_t first_dense_group(const int8_t* weight, int64_t rows, int64_t inputs) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < inputs; first += kGroup) {
      int others = 0;
      for (int64_t i = first; i < inputs && i < first + kGroup; ++i) others += weight[row * inputs + i] != 0;
      if (others > kKept) return row * inputs + first;
    }
  }
  return -1;
}

/// Returns which values of a group stay, bit i for value i: the two of largest magnitude, the earlier ones of equals.
/// NaN always stays, so that it is not hidden.
OCTET_HOST_DEVICE inline unsigned two_of_four(const float* value, long step) {
  unsigned kept = 0;
  for (int i = 0; i < kGroup; ++i) {
    int larger = 0;
    const float mine = fabsf(value[i * step]);
    for (int j = 0; j < kGroup; ++j) {
      const float other = fabsf(value[j * step]);
      larger += other > mine || (other == mine && j < i);
    }
    kept |= static_cast<unsigned>(larger < kKept) << i;
  }
  return kept;
}

/// Writes the values of a group that stay to `to`, and 0 for the others.
OCTET_HOST_DEVICE inline void keep_two_of_four(const SparseWeights& w, int32_t channel, int32_t group) {
  const long at = w.index(channel, group), step = w.step();
  const unsigned kept = two_of_four(w.weight + at, step);
  for (int i = 0; i < kGroup; ++i) {
    const float value = w.weight[at + i * step];
    w.to[at + i * step] = (kept >> i & 1) != 0 ? value : 0.0f;
  }
}

/// Adds rate * weight to `to` for the values of a group that do not stay: the gradient of their decay (SR-STE; Zhou et
/// al., arXiv 2102.04010, equation 9).
OCTET_HOST_DEVICE inline void decay_pruned(const SparseWeights& w, int32_t channel, int32_t group, float rate) {
  const long at = w.index(channel, group), step = w.step();
  const unsigned kept = two_of_four(w.weight + at, step);
  for (int i = 0; i < kGroup; ++i)
    if ((kept >> i & 1) == 0) w.to[at + i * step] = fmaf(rate, w.weight[at + i * step], w.to[at + i * step]);
}

/// keep_two_of_four() for every group of `count` weight tensors on the GPU, with one launch for each 56. The array
/// `weights` is in host memory and copied with the launch; its pointers are on the device.
void cuda_keep_two_of_four(const SparseWeights* weights, int count, CudaStream stream);

/// decay_pruned() for every group, likewise.
void cuda_decay_pruned(const SparseWeights* weights, int count, float rate, CudaStream stream);

}  // namespace octet::kernels
