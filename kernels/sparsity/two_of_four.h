// 2:4 sparsity: of each group of four weights at most two are not 0. A group is four consecutive input channels of one
// output channel at one position of the kernel: in the int8 layout [K, R, S, C] four neighbours, along the dimension
// that a convolution sums over, which is how the tensor cores' sparse instructions (mma.sp, wgmma.sp) want it. Host and
// device.
#pragma once

#include <cstdint>

#include "kernels/quantize.h"

namespace octet::kernels {

inline constexpr int kGroup = 4, kKept = 2;

/// A weight of `channels` rows without gaps, each [inputs, taps] as PyTorch counts it, or [taps, inputs]
/// (channels-last). inputs is a multiple of 4; groups of convolutions and pixels behind a flatten are in `inputs` and
/// `taps`.
struct SparseWeights {
  const float* weight = nullptr;
  float* to = nullptr;  ///< same layout; may be `weight`
  int32_t channels = 0, inputs = 0, taps = 0;
  bool channels_last = false;

  OCTET_HOST_DEVICE int32_t groups() const { return inputs / kGroup * taps; }  ///< of a row
  OCTET_HOST_DEVICE long step() const { return channels_last ? 1 : taps; }     ///< between the values of a group
  /// Of the first value of a row's group.
  OCTET_HOST_DEVICE long index(int32_t channel, int32_t group) const {
    const int32_t tap = group % taps, input = group / taps * kGroup;
    const long row = static_cast<long>(channel) * inputs * taps;
    return row + (channels_last ? static_cast<long>(tap) * inputs + input : static_cast<long>(input) * taps + tap);
  }
};

/// The first weight of the first group in `rows` rows of `inputs` codes of which more than two are not 0, or -1. The
/// last group of a row may have less than four.
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

/// Bit i: value i of the group is one of the two of the largest magnitude; of equal ones the earlier. NaN always stays,
/// so that nothing hides it.
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

/// `to` = the values that stay, 0 for the others.
OCTET_HOST_DEVICE inline void keep_two_of_four(const SparseWeights& w, int32_t channel, int32_t group) {
  const long at = w.index(channel, group), step = w.step();
  const unsigned kept = two_of_four(w.weight + at, step);
  for (int i = 0; i < kGroup; ++i) {
    const float value = w.weight[at + i * step];
    w.to[at + i * step] = (kept >> i & 1) != 0 ? value : 0.0f;
  }
}

/// `to` += rate * weight for those that do not stay: the gradient of their decay (SR-STE; Zhou et al., arXiv
/// 2102.04010, equation 9).
OCTET_HOST_DEVICE inline void decay_pruned(const SparseWeights& w, int32_t channel, int32_t group, float rate) {
  const long at = w.index(channel, group), step = w.step();
  const unsigned kept = two_of_four(w.weight + at, step);
  for (int i = 0; i < kGroup; ++i)
    if ((kept >> i & 1) == 0) w.to[at + i * step] = fmaf(rate, w.weight[at + i * step], w.to[at + i * step]);
}

}  // namespace octet::kernels
