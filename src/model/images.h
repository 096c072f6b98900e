// Pictures as the network's input tensor, on the CPU or a GPU: the same bits on both.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace octet {

/// `count` pictures in the host's memory: uint8 [count, H, W, C] of this shape.
struct Pictures {
  const uint8_t* pixels = nullptr;
  int count = 0;
  Shape shape;
};

/// float [N, C, H, W], channels-last memory: tables[c * 256 + pixel]. On a GPU the pixels go up as bytes on the current
/// stream; the host waits until they are there, and `pictures` may be overwritten at once.
at::Tensor look_up_pixels(const Pictures& pictures, const std::vector<float>& tables, at::Device device);

/// Normalized: normalize_pixel(pixel, mean[c], std[c]), the same table as the int8 input's.
at::Tensor images_to_tensor(const Pictures& pictures, const std::vector<float>& mean, const std::vector<float>& std,
                            at::Device device);

}  // namespace octet
