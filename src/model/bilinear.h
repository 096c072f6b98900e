// resize_bilinear on tensors [N, C, H, W], by whole factors with half-pixel centres: of values, and of codes, whose
// sums are exact. Each of the `factor` rows that lie in one row of the input is a mean of it and a neighbour with
// weights of its own: slices and sums, so that the backward pass adds in one order on every machine, and a neighbour of
// weight 0 is not read (0 times infinity would be no number).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace octet {

/// Along an axis of x (not the first or last), with weights that add up to 2 * factor * unit.
inline at::Tensor interpolated_axis(const at::Tensor& x, int64_t axis, int factor, double unit) {
  const int64_t size = x.size(axis);
  const at::Tensor before = at::cat({x.narrow(axis, 0, 1), x.narrow(axis, 0, size - 1)}, axis);
  const at::Tensor behind = at::cat({x.narrow(axis, 1, size - 1), x.narrow(axis, size - 1, 1)}, axis);
  std::vector<at::Tensor> parts;
  for (int part = 0; part < factor; ++part) {
    const int place = 2 * part + 1 - factor;  // from the centre of the input's pixel, in its 1 / (2 factor)
    const int weight = place < 0 ? -place : place;
    const at::Tensor own = x.mul((2 * factor - weight) * unit);
    parts.push_back(place == 0 ? own : own.add(place < 0 ? before : behind, weight * unit));
  }
  return at::stack(parts, axis + 1).flatten(axis, axis + 1);
}

inline at::Tensor interpolated(const at::Tensor& x, const Node& node, double unit_h, double unit_w) {
  const at::Tensor rows = interpolated_axis(x.permute({0, 2, 3, 1}), 1, node.factor_h, unit_h);
  return interpolated_axis(rows, 2, node.factor_w, unit_w).permute({0, 3, 1, 2});
}

/// Values.
inline at::Tensor interpolated_pixels(const at::Tensor& x, const Node& node) {
  return interpolated(x, node, 0.5 / node.factor_h, 0.5 / node.factor_w);
}

/// Of codes without their zero point: sums with whole weights, 4 * factor_h * factor_w times their mean.
inline at::Tensor interpolated_sums(const at::Tensor& x, const Node& node) { return interpolated(x, node, 1, 1); }

}  // namespace octet
