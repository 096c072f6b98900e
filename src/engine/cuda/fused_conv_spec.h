// A convolution with its epilogue as other libraries take it. Plain data.
#pragma once

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet {

/// y = convert(clamp(conv(x, w) * multiplier[k] + bias[k] + residual * residual_multiplier)), rounded half to even.
struct FusedConvSpec {
  enum class Type {
    int8,  ///< codes with zero point 0, int32 sums
    fp16   ///< halves, float32 sums: what int8 is measured against
  };
  Type type = Type::int8;
  int images = 1;
  kernels::Conv2dShape shape;  ///< dense: strides equal to the channels
  bool residual = false;
  int clamp_min = -128, clamp_max = 127;  ///< fp16: only whether clamp_min is 0 (ReLU) counts
  bool every_plan = true;                 ///< cuDNN; false: the first that it proposes, without timing
};

/// On the device. x [images, H, W, C], weight [K, R, S, C/groups], y and residual [images, OH, OW, K], of the spec's
/// type; multiplier and bias [K], residual_multiplier [1].
struct FusedConvTensors {
  const void *x = nullptr, *weight = nullptr;
  const float *multiplier = nullptr, *bias = nullptr;
  const void* residual = nullptr;
  const float* residual_multiplier = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;
};

}  // namespace octet
