// SPDX-License-Identifier: Apache-2.0
// Convolutions and linears on the GPU. Which kernel runs one is measured once for each kind of convolution, number of
// images and GPU, and kept in a file (kernel_cache.h) for later processes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/conv/cuda_conv2d.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/step.h"

namespace octet {

/// One convolution with its tensors on the device; `tensors` has neither packed constants nor workspace yet.
struct ConvProblem {
  const kernels::Conv2dShape& shape;
  const kernels::Conv2dParams& params;
  const kernels::Conv2dWeights& weights;
  kernels::CudaConv2dData tensors;
  /// Launches the kernel that runs before this one in the network, or is empty. Candidates are timed after it, because
  /// their start overlaps its end, and it leaves the input, but not the weights, in the caches.
  const std::function<void()>& before;
};

/// Returns the line that remembered_choice() identifies the problem by.
std::string conv_work(const ConvProblem& problem);

/// Returns the fastest of the kernels whose names contain `allowed` ("auto": all) and that this GPU launches. May write
/// the output. Throws Error(promise) that lists the names if none contains `allowed`, or the refusals if the GPU
/// launches none of them.
kernels::CudaConv2d choose_conv2d(const ConvProblem& problem, const std::string& allowed, const Stream& stream);

/// Makes the step of a conv2d or linear, which chooses among the kernels that `kernels`, CompileOptions::kernels,
/// allows.
std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels);

}  // namespace octet
