// A convolution with its epilogue as one operation graph of cuDNN: every plan that cuDNN proposes is built and timed,
// the fastest is kept. No CUDA types here; fused_conv.cpp is the only file that includes cudnn_frontend.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "src/cuda/stream.h"

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
  bool every_plan = true;                 ///< false: the first that cuDNN proposes, without timing
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

class FusedConv {
 public:
  virtual ~FusedConv() = default;
  virtual std::string name() const = 0;  ///< "engine 12 k2=3, fastest of 14"
  virtual size_t workspace_bytes() const = 0;
  /// Can be captured in a CUDA graph. Any thread, one at a time. Throws Error(promise).
  virtual void launch(const FusedConvTensors& tensors, CudaStream stream) const = 0;
};

/// The fastest plan by launches on `tensors` (workspace is not used); timed once a process for each spec. Throws
/// Error(promise) with cuDNN's reason when it has none.
std::shared_ptr<const FusedConv> fused_conv(const FusedConvSpec& spec, const FusedConvTensors& tensors,
                                            const Stream& stream);

/// Builds the plans of all specs, which fused_conv() then finds built. cuDNN compiles a kernel for each, about a second
/// a plan: all cores share the work.
void build_plans(const std::vector<FusedConvSpec>& specs);

}  // namespace octet
