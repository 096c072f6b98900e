// LibTorch's convolution of images, with what it lacks and without its fault.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/graph/graph.h"

namespace octet {

/// x: [N, C, H, W]; weight: [K, C/groups, R, S] of x's type; bias [K] or undefined. Padding may differ from side to
/// side.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Window& window,
                    int groups);

}  // namespace octet
