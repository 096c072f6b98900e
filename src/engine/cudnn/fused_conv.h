// A convolution with its epilogue as one operation graph of cuDNN: every plan that cuDNN proposes is built and timed,
// the fastest is kept. No CUDA types here; fused_conv.cpp is the only file that includes cudnn_frontend.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/cuda/stream.h"
#include "src/engine/cuda/fused_conv_spec.h"

namespace octet {

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
