// slice and resize on tensors [N, C, H, W]: copies, the same for values and for codes.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/graph/graph.h"

namespace octet {

/// slice. May be x's own memory when it takes all channels.
inline at::Tensor picked_channels(const at::Tensor& x, const Node& node) {
  return x.slice(1, node.first_channel, node.first_channel + node.out_channels).contiguous(x.suggest_memory_format());
}

/// resize: every pixel several times, in channels-last memory. Not LibTorch's nearest, which finds pixels by a float
/// scale. May be x's own memory when the factors are 1.
inline at::Tensor repeated_pixels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .unsqueeze(3)
      .unsqueeze(2)
      .expand({n, h, node.factor_h, w, node.factor_w, c})
      .reshape({n, h * node.factor_h, w * node.factor_w, c})
      .permute({0, 3, 1, 2});
}

}  // namespace octet
