// Which kernel runs a convolution: measured, once for each kind of convolution, number of images and GPU, and kept in a
// file (kernel_cache.h) for later processes.
#pragma once

#include <functional>
#include <string>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/cuda/stream.h"

namespace octet {

/// One convolution with its tensors on the device. `tensors` has neither packed constants nor workspace.
struct ConvProblem {
  const kernels::Conv2dShape& shape;
  const kernels::Conv2dParams& params;
  const kernels::Conv2dWeights& weights;
  kernels::CudaConv2dData tensors;
  /// Launches the kernel that runs before it in the network, or is empty. A kernel's time counts behind that one: its
  /// start overlaps that one's end, and that one leaves the input, but not the weights, near the multiprocessors.
  const std::function<void()>& before;
};

/// The line that remembered_choice() knows the problem by.
std::string conv_work(const ConvProblem& problem);

/// The fastest of the kernels whose names contain `allowed` ("auto": of all) and that this GPU launches. May write
/// the output. Throws Error(promise) listing the names when no name does, and the refusals when the GPU launches none.
kernels::CudaConv2d choose_conv2d(const ConvProblem& problem, const std::string& allowed, const Stream& stream);

}  // namespace octet
