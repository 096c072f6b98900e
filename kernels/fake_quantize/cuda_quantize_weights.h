// All weights of a network, scaled and fake-quantized in one launch a step. The scales are those of src/quant's
// weight_scales and weight_scales_mse, bit for bit.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/fake_quantize/weight_codes.h"
#include "kernels/value_type.h"

namespace octet::kernels {

enum class ScaleRule {
  reach,          ///< the least whose codes hold all values
  least_squares,  ///< the best of some shrunk ranges
  given,          ///< `scale` is read, not written; a null not_finite is not written either
};

struct WeightRules {
  ScaleRule rule = ScaleRule::reach;
  bool per_tensor = false;              ///< one scale, repeated for every channel
  ValueType type = ValueType::float32;  ///< of `quantized` and of gradients
  /// Backward, where scales learn (learned_scale.h): every WeightGradient::scale points into `scales`, and dscales[i]
  /// becomes the gradient of scales[i].
  const float* scales = nullptr;
  float* dscales = nullptr;
};

/// One weight [channels, per_channel] without gaps. Pointers on the device.
struct WeightTensor {
  const float* weight = nullptr;
  void* quantized = nullptr;      ///< same layout; times the gain, rounded once
  const float* gain = nullptr;    ///< [channels]; null: 1. Scales and codes do not depend on it.
  float* scale = nullptr;         ///< [channels]
  int32_t* not_finite = nullptr;  ///< set to 1 when a weight is NaN or infinite; never cleared
  int32_t channels = 0, per_channel = 0;
  /// kernel_h * kernel_w where a channel lies in memory as [kernel_h, kernel_w, in_channels] (channels-last), 0 where
  /// as PyTorch counts it, [in_channels, kernel_h, kernel_w]. Sums of errors are added in PyTorch's order.
  int32_t channels_last_window = 0;
  WeightCodes codes;
};

/// `weights`: `count` of them, in host memory, copied with the launch (one launch for each 56).
void cuda_quantize_weights(const WeightRules& rules, const WeightTensor* weights, int count, CudaStream stream);

struct WeightGradient {
  const void* dy = nullptr;  ///< gradient of `quantized`, same layout
  float* dx = nullptr;       ///< gradient of `weight`
  /// As they were in the forward pass; weight and scale are only read where there is a gain, or where something may
  /// have been clipped (not by ScaleRule::reach).
  const float* weight = nullptr;
  const float* scale = nullptr;
  const float* gain = nullptr;
  float* dgain = nullptr;  ///< [channels], where there is a gain
  int32_t channels = 0, per_channel = 0;
  WeightCodes codes;
};

/// dx = dy * gain in float32 where the code was not clipped, else 0; dgain = the sum of dy times the fake-quantized
/// weight over each channel, and so the scales' gradients, always added in the same order.
void cuda_quantize_weights_backward(const WeightRules& rules, const WeightGradient* weights, int count,
                                    CudaStream stream);

}  // namespace octet::kernels
