// The inverted residual of MobileNetV2 as one operator: 1x1 convolution that widens, depthwise 3x3, 1x1 convolution
// that narrows, perhaps plus a residual. Its definition are the three convolutions, one after the other.
#pragma once

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet::kernels {

/// One of the convolutions: what kernels/conv2d_int8 is given.
struct ConvNode {
  Conv2dShape shape;
  Conv2dParams params;
  Conv2dWeights weights;
};

/// Each convolution reads what the one before it writes: channels, height, width and edges agree. The strides of what
/// lies between them mean nothing: it is never in memory.
struct InvertedResidual {
  bool has_expand = true;  ///< without it, as in MobileNetV2's first block, depthwise reads x
  ConvNode expand, depthwise, project;

  const ConvNode& first() const { return has_expand ? expand : depthwise; }
};

/// The definition: one image. x: codes [H, W, in_stride of the first convolution]; residual: codes [OH, OW,
/// residual_stride of project] or null; y: codes [OH, OW, out_stride of project].
void inverted_residual_int8_reference(const InvertedResidual& block, const void* x, const void* residual, void* y);

}  // namespace octet::kernels
