// SPDX-License-Identifier: Apache-2.0
// The operations that other libraries run for octet: convolutions of cuDNN and CUTLASS, linear layers of cuBLASLt.
// Plain data, without types of CUDA or of these libraries.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/cuda/stream.h"

namespace octet {

/// y = convert(clamp(conv(x, w) * multiplier[k] + bias[k] + residual * residual_multiplier)), rounded half to even.
struct FusedConvSpec {
  enum class Type {
    int8,  ///< codes with zero point 0, int32 sums
    fp16   ///< halves, float32 sums: what int8 is compared with
  };
  Type type = Type::int8;
  int images = 1;
  kernels::Conv2dShape shape;  ///< dense: strides equal to the channels
  bool residual = false;
  int clamp_min = -128, clamp_max = 127;  ///< for fp16 only whether clamp_min is 0 (ReLU) matters
  bool every_plan = true;                 ///< cuDNN: time every plan that it proposes, else take the first
};

/// Pointers on the device: x [images, H, W, C], weight [K, R, S, C/groups], y and residual [images, OH, OW, K] of the
/// spec's type; multiplier and bias [K], residual_multiplier [1].
struct FusedConvTensors {
  const void *x = nullptr, *weight = nullptr;
  const float *multiplier = nullptr, *bias = nullptr;
  const void* residual = nullptr;
  const float* residual_multiplier = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;
};

/// What a library runs one convolution or linear layer with.
class FusedConv {
 public:
  virtual ~FusedConv() = default;
  virtual std::string name() const = 0;  ///< for example "engine 12 k2=3, fastest of 14"
  virtual size_t workspace_bytes() const = 0;
  /// Launches it; can be captured in a CUDA graph. Any thread may call it, one at a time. Throws Error(promise).
  virtual void launch(const FusedConvTensors& tensors, CudaStream stream) const = 0;
};

/// Returns cuDNN's fastest plan, timed by launches on `tensors` (without their workspace) once a process for each spec.
/// Throws Error(promise) with cuDNN's reason if it has none.
std::shared_ptr<const FusedConv> cudnn_conv(const FusedConvSpec& spec, const FusedConvTensors& tensors,
                                            const Stream& stream);

/// Builds cuDNN's plans of all specs for later calls of cudnn_conv(). cuDNN compiles a kernel for each plan, which
/// takes about a second: all cores share the work.
void build_plans(const std::vector<FusedConvSpec>& specs);

/// A linear layer of `images` rows: its shape as a 1x1 convolution with the tensors' strides, and its output.
struct LinearSpec {
  int images = 1;
  kernels::Conv2dShape shape;
  kernels::CodeOutput y;
};

/// Returns cuBLASLt's fastest int8 product, timed by launches on `tensors` (without their workspace), with octet's
/// rounding rule after it. Throws Error(promise) if cuBLASLt has none.
std::shared_ptr<const FusedConv> cudnn_linear(const LinearSpec& spec, const FusedConvTensors& tensors,
                                              const Stream& stream);

/// Returns the fastest of cutlass_kernels(), timed by launches on `tensors` once a process for each spec. Throws
/// Error(promise) with the reasons if none takes the shape.
std::shared_ptr<const FusedConv> cutlass_conv(const FusedConvSpec& spec, const FusedConvTensors& tensors,
                                              const Stream& stream);

/// A tile of CUTLASS's templates. Sums are exact, and the epilogue is the rule of kernels/core/quantize.h: one fma for
/// multiplier and bias, one for the residual, clamp, round half to even.
struct CutlassKernel {
  std::string name;  ///< "gemm_pingpong_m64n128k128"
  bool gemm;         ///< whether it runs 1x1 convolutions only, with pixels as the rows of a matrix; else implicit GEMM
  /// Launches a convolution of int8 codes; spec.every_plan and tensors.workspace are not used. Allocates nothing and
  /// can be captured. Throws kernels::LaunchRefused if the tile does not take that shape or this GPU, Error(promise) if
  /// the launch fails.
  void (*launch)(const FusedConvSpec& spec, const FusedConvTensors& tensors, CudaStream stream);
};

/// Returns all tiles of the five functions below, each of which is compiled from a file of its own (CMakeLists.txt), as
/// CUTLASS's headers take nvcc a minute; none in a build without CUTLASS.
const std::vector<CutlassKernel>& cutlass_kernels();
std::vector<CutlassKernel> cutlass_pingpong_gemms();
std::vector<CutlassKernel> cutlass_cooperative_gemms();
std::vector<CutlassKernel> cutlass_persistent_convs();
std::vector<CutlassKernel> cutlass_narrow_implicit_gemms();
std::vector<CutlassKernel> cutlass_wide_implicit_gemms();

}  // namespace octet
