// The convolutions that are compiled from CUTLASS's templates, one a tile. No CUTLASS types here: only the .cu files
// beside this one include its headers, which take nvcc a minute each.
#pragma once

#include <string>
#include <vector>

#include "src/cuda/stream.h"
#include "src/engine/cuda/fused_conv_spec.h"

namespace octet {

/// One tile. Sums are exact, and the epilogue is the rule of kernels/quantize.h: one fma for multiplier and bias, one
/// for the residual, clamp, round half to even.
struct CutlassKernel {
  std::string name;  ///< "gemm_pingpong_m64n128k128"
  bool gemm;         ///< runs 1x1 convolutions only: pixels are the rows of a matrix; else implicit GEMM
  /// Launches the convolution of int8 codes; spec.every_plan and tensors.workspace are not used. Allocates nothing, may
  /// be captured. Throws kernels::LaunchRefused when the tile does not take that shape or this GPU, Error(promise) when
  /// the launch fails.
  void (*launch)(const FusedConvSpec& spec, const FusedConvTensors& tensors, CudaStream stream);
};

std::vector<CutlassKernel> cutlass_pingpong_gemms();
std::vector<CutlassKernel> cutlass_cooperative_gemms();
std::vector<CutlassKernel> cutlass_persistent_convs();
std::vector<CutlassKernel> cutlass_narrow_implicit_gemms();
std::vector<CutlassKernel> cutlass_wide_implicit_gemms();

/// All of the above.
const std::vector<CutlassKernel>& cutlass_kernels();

}  // namespace octet
