// SPDX-License-Identifier: Apache-2.0
// Inputs of fake quantization and its results, for the tests on the CPU and on a GPU.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/accumulate.h>

#include "kernels/core/quantize.h"

namespace octet::test {

/// Returns values that round and clip: half steps, bounds and beyond, then noise. The shape must have more than 1400
/// elements.
inline at::Tensor values(const QParams& q, at::IntArrayRef shape) {
  at::manual_seed(11);
  const at::Tensor grid = at::arange(-700, 700, at::kFloat) * (q.scale / 2);
  const at::Tensor noise = at::randn({c10::multiply_integers(shape) - grid.numel()}) * (q.scale * 90);
  return at::cat({grid, noise}).view(shape);
}

struct Outcome {
  at::Tensor y, gradient;  // on the CPU
};

/// Returns f(x) for a leaf on that device, and the gradient of a weighted sum of it.
template <class F>
Outcome run(const at::Tensor& x, const F& f, at::Device device = at::kCPU) {
  const at::Tensor leaf = x.detach().to(device).clone().requires_grad_(true);
  const at::Tensor y = f(leaf);
  y.backward(at::arange(1, x.numel() + 1, at::kFloat).view(x.sizes()).to(device, x.scalar_type()));
  return {y.detach().cpu(), leaf.grad().cpu()};
}

}  // namespace octet::test
