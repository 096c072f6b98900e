// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace octet {
namespace {

constexpr double kTop = 1.1, kBottom = -0.1;  // of the stretched sigmoid
constexpr double kFromCode = 0.45;            // latents start at most so far from their code ...
constexpr double kWithinCode = 0.49;          // ... and stay so far within the codes

}  // namespace

at::Tensor by_row(const at::Tensor& of_rows, const at::Tensor& weight) {
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  return of_rows.view(shape);
}

Rounding::Rounding(const std::vector<FloatWeight>& layers) {
  std::vector<at::Tensor> scales, nearest, lower, free, shares;
  for (const FloatWeight& layer : layers) {
    const at::Tensor& weight = layer.values;
    const WeightCodes& codes = layer.codes;
    shapes_.push_back(weight.sizes().vec());
    sizes_.push_back(weight.numel());
    const at::Tensor scale = by_row(layer.scale, weight), steps = weight / scale;
    const at::Tensor code = steps.round().clamp(codes.lowest, codes.highest);
    const at::Tensor reach = at::maximum(steps / codes.lowest, steps / codes.highest).flatten(1);
    const at::Tensor largest = reach.eq(reach.amax(1, /*keepdim=*/true)).view_as(weight);
    const at::Tensor may_move =
        steps.ge(codes.lowest).logical_and(steps.lt(codes.highest)).logical_and(largest.logical_not());
    const at::Tensor below = at::where(may_move, steps.floor(), code);
    scales.push_back(scale.expand_as(weight).flatten());
    nearest.push_back(code.flatten());
    lower.push_back(below.flatten());
    free.push_back(may_move.flatten());
    shares.push_back((steps - below).clamp(0, 1).flatten());
  }
  scale_ = at::cat(scales);
  nearest_ = at::cat(nearest);
  lower_ = at::cat(lower);
  free_ = at::cat(free).to(at::kFloat);
  const at::Tensor share = (at::cat(shares) - kBottom) / (kTop - kBottom);
  logits_ = (share / (1 - share)).log();
}

Rounding::Soft Rounding::softly_rounded() const {
  const at::Tensor sigmoid = logits_.sigmoid(), stretched = sigmoid * (kTop - kBottom) + kBottom;
  const at::Tensor up = stretched.clamp(0, 1);
  return {sigmoid, stretched, up, at::addcmul(lower_, free_, up)};
}

at::Tensor Rounding::gradient(const Soft& soft, const std::vector<at::Tensor>& by_weights, const at::Tensor& power,
                              const at::Tensor& push) const {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& gradient : by_weights) flat.push_back(gradient.flatten());
  const at::Tensor off_middle = 2 * soft.up - 1;
  const at::Tensor pushed =
      off_middle * off_middle.abs().pow(power - 2) * (power * push * (-2.0 / static_cast<double>(logits_.numel())));
  const at::Tensor by_up = at::addcmul(pushed, at::cat(flat), scale_);
  const at::Tensor by_sigmoid = at::hardtanh_backward(by_up, soft.stretched, 0, 1) * (kTop - kBottom);
  return at::sigmoid_backward(by_sigmoid, soft.sigmoid);
}

at::Tensor Rounding::rounded() const { return lower_ + free_ * softly_rounded().up.ge(0.5); }

std::vector<at::Tensor> Rounding::weights(const at::Tensor& codes) const {
  std::vector<at::Tensor> weights = (scale_ * codes).split_with_sizes(sizes_);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i].view(shapes_[i]);
  return weights;
}

MovingCodes::MovingCodes(const at::Tensor& rounded, const at::Tensor& floats, const std::vector<float>& scale,
                         const WeightCodes& codes, bool per_tensor)
    : codes_(codes) {
  first_scale_ = by_row(at::tensor(scale).to(rounded.device()), rounded);
  const at::Tensor code = (rounded / first_scale_).round().clamp(codes.lowest, codes.highest);
  latent_ = at::minimum(at::maximum(floats / first_scale_, code - kFromCode), code + kFromCode).contiguous();
  free_ = at::maximum(code / codes.lowest, code / codes.highest).lt(1).to(at::kFloat);
  gain_ = at::zeros({per_tensor ? 1 : latent_.size(0)}, latent_.options());
}

at::Tensor MovingCodes::scale() const { return first_scale_ * by_row(gain_.exp(), latent_); }

at::Tensor MovingCodes::weight() const { return scale() * latent_.round(); }

MovingCodes::Gradients MovingCodes::gradients(const at::Tensor& by_weight, const at::Tensor& weight) const {
  const at::Tensor by_gain = (by_weight * weight).flatten(1).sum(1);
  return {(by_weight * scale() * free_).contiguous(), gain_.size(0) == 1 ? by_gain.sum(0, true) : by_gain};
}

void MovingCodes::hold() { latent_.clamp_(codes_.lowest - kWithinCode, codes_.highest + kWithinCode); }

}  // namespace octet
