// LibTorch's convolutions and pools pad both sides of an image alike; what pads otherwise is padded before them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>

#include <array>
#include <cstdint>

#include "src/graph/graph.h"

namespace octet {

struct PaddedImage {
  at::Tensor image;            ///< [N, C, H, W]
  std::array<int64_t, 2> pad;  ///< [vertical, horizontal], left to the operator
};

/// x itself and its padding where that is even; else x with `value` around it.
inline PaddedImage padded(const at::Tensor& x, const Padding& pad, double value) {
  if (pad.is_even()) return {x, {pad.top, pad.left}};
  return {at::constant_pad_nd(x, {pad.left, pad.right, pad.top, pad.bottom}, value), {0, 0}};
}

}  // namespace octet
