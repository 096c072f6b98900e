// slice, resize, channel_shuffle and depth_to_space on tensors [N, C, H, W]: copies, the same for values and for codes.
// They come in channels-last memory, but for a slice, and may be x's own memory where nothing changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "src/graph/graph.h"

namespace octet {

inline at::Tensor picked_channels(const at::Tensor& x, const Node& node) {
  return x.slice(1, node.first_channel, node.first_channel + node.out_channels).contiguous(x.suggest_memory_format());
}

/// Not LibTorch's nearest, which finds pixels by a float scale.
inline at::Tensor repeated_pixels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .unsqueeze(3)
      .unsqueeze(2)
      .expand({n, h, node.factor_h, w, node.factor_w, c})
      .reshape({n, h * node.factor_h, w * node.factor_w, c})
      .permute({0, 3, 1, 2});
}

inline at::Tensor shuffled_channels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .reshape({n, h, w, node.groups, c / node.groups})
      .transpose(3, 4)
      .reshape({n, h, w, c})
      .permute({0, 3, 1, 2});
}

inline at::Tensor channels_to_pixels(const at::Tensor& x, const Node& node) {
  const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
  return x.permute({0, 2, 3, 1})
      .reshape({n, h, w, node.factor_h, node.factor_w, node.shape.c})
      .transpose(2, 3)
      .reshape({n, h * node.factor_h, w * node.factor_w, node.shape.c})
      .permute({0, 3, 1, 2});
}

}  // namespace octet
