// SPDX-License-Identifier: Apache-2.0
// Weights in training: their scales, and fake quantization of all weights of a network in one launch. Inline functions
// are for host and device.
#pragma once

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

}  // namespace octet::kernels
