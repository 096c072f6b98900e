// SPDX-License-Identifier: Apache-2.0
// Weights in training: their scales, fake quantization of all weights of a network in one launch, and 2:4 sparsity.
// Sparse means that at most two of each group of four weights are not 0. A group is four consecutive input channels of
// one output channel at one position of the kernel: four neighbours in the int8 layout [K, R, S, C], along the
// dimension that a convolution sums over, as the sparse instructions of tensor cores (mma.sp, wgmma.sp) require. Inline
// functions are for host and device.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "kernels/training/observe.h"

namespace octet::kernels {

/// The max magnitudes of the weights that share a scale: the largest -w and the largest w, each at least 0.
struct WeightReach {
  float below = 0, above = 0;
};

/// Returns the smallest scale whose codes hold all these weights: max(below / -lowest, above / highest). All zeros give
/// 1 / highest.
OCTET_HOST_DEVICE inline float scale_of_reach(const WeightReach& reach, const WeightCodes& codes) {
  if (reach.below == 0 && reach.above == 0) return 1.0f / static_cast<float>(codes.highest);
  const float below = reach.below / static_cast<float>(-codes.lowest);
  const float above = reach.above / static_cast<float>(codes.highest);
  const float scale = below > above ? below : above;
  return scale > kSmallestScale ? scale : kSmallestScale;
}

/// What a row of weight codes holds.
struct CodeRow {
  int32_t lowest = 0, highest = 0;
  int64_t magnitude = 0;  ///< sum of |code|
};
CodeRow see_codes(const int8_t* codes, size_t count);

/// Factors by which a search for the smallest squared error shrinks the range, in the order in which they are tried. Of
/// several with equal errors the first wins.
struct ShrinkFactors {
  static constexpr int kMost = 32;
  double factor[kMost] = {};
  int count = 0;
};

/// Returns the factors of the first, coarse pass. They go down to 0.2, since few bits need much narrower ranges than 8.
OCTET_HOST_DEVICE inline ShrinkFactors coarse_factors() {
  constexpr double kCoarse = 0.04, kLeast = 0.2;
  ShrinkFactors factors;
  for (int i = 0; 1 - i * kCoarse >= kLeast; ++i) factors.factor[factors.count++] = 1 - i * kCoarse;
  return factors;
}

/// Returns the factors of the second pass, around the best one of the first.
OCTET_HOST_DEVICE inline ShrinkFactors fine_factors(double centre) {
  constexpr double kCoarse = 0.04, kFine = 0.005;
  ShrinkFactors factors;
  for (double offset = kFine; offset < kCoarse; offset += kFine) {
    if (centre + offset <= 1) factors.factor[factors.count++] = centre + offset;
    factors.factor[factors.count++] = centre - offset;
  }
  return factors;
}

/// Returns the scale of the range shrunk by `factor`.
OCTET_HOST_DEVICE inline float shrunk_scale(const WeightReach& reach, double factor, const WeightCodes& codes) {
  return scale_of_reach({static_cast<float>(reach.below * factor), static_cast<float>(reach.above * factor)}, codes);
}

/// Squared errors are added up in this many partial sums, value i in sum i % kErrorLanes, which are then added in
/// order. So the CPU and the GPU give the same bits.
inline constexpr int kErrorLanes = 16;

/// How the scale of weights is found. The bits are those of src/quant's weight_scales() and weight_scales_mse().
enum class ScaleRule {
  reach,          ///< scale_of_reach()
  least_squares,  ///< the shrunk range with the smallest squared error
  given,          ///< `scale` is read, not written; not_finite may be null
};

/// What applies to all weights of a launch.
struct WeightRules {
  ScaleRule rule = ScaleRule::reach;
  bool per_tensor = false;              ///< one scale for all channels, written for each
  ValueType type = ValueType::float32;  ///< of `quantized` and of gradients
  /// In the backward pass of trained scales (lsq in learned_range.h), every WeightGradient::scale points into `scales`,
  /// and dscales[i] becomes the gradient of scales[i].
  const float* scales = nullptr;
  float* dscales = nullptr;
};

/// A weight tensor [channels, per_channel] without gaps. All pointers are on the device.
struct WeightTensor {
  const float* weight = nullptr;
  void* quantized = nullptr;    ///< written, in the same layout: the fake-quantized weight times the gain, rounded once
  const float* gain = nullptr;  ///< [channels]; null: 1. Scales and codes do not depend on it.
  float* scale = nullptr;       ///< [channels]
  int32_t* not_finite = nullptr;  ///< set to 1 when a weight is NaN or infinite; never cleared
  int32_t channels = 0, per_channel = 0;
  /// kernel_h * kernel_w where a channel is [kernel_h, kernel_w, in_channels] in memory (channels-last); 0 where it is
  /// in PyTorch's order, [in_channels, kernel_h, kernel_w]. Squared errors are added in PyTorch's order.
  int32_t channels_last_window = 0;
  WeightCodes codes;
};

/// Finds the scales of `count` weights and fake-quantizes them, with one launch for each 56. The array `weights` is in
/// host memory and copied with the launch.
void cuda_quantize_weights(const WeightRules& rules, const WeightTensor* weights, int count, CudaStream stream);

/// The backward pass of a WeightTensor. All pointers are on the device.
struct WeightGradient {
  const void* dy = nullptr;  ///< gradient of `quantized`, in its layout
  float* dx = nullptr;       ///< written: gradient of `weight`
  /// As in the forward pass. weight and scale are read only where there is a gain or where weights may have been
  /// clipped, which ScaleRule::reach never does.
  const float* weight = nullptr;
  const float* scale = nullptr;
  const float* gain = nullptr;
  float* dgain = nullptr;  ///< written: [channels], where there is a gain
  int32_t channels = 0, per_channel = 0;
  WeightCodes codes;
};

/// Writes dx = dy * gain in float32 where the code was not clipped, else 0, and dgain = the sum over each channel of dy
/// times the fake-quantized weight; likewise the gradients of the scales. Sums are added in a fixed order.
void cuda_quantize_weights_backward(const WeightRules& rules, const WeightGradient* weights, int count,
                                    CudaStream stream);

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
