#include "src/qat/reconstruct/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace octet {
namespace {

constexpr double kTop = 1.1, kBottom = -0.1;  // of the stretched sigmoid

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
  free_ = at::cat(free);
  const at::Tensor share = (at::cat(shares) - kBottom) / (kTop - kBottom);
  logits_ = (share / (1 - share)).log().detach().requires_grad_(true);
}

at::Tensor Rounding::up() const { return (logits_.sigmoid() * (kTop - kBottom) + kBottom).clamp(0, 1); }

at::Tensor Rounding::push(const at::Tensor& up, const at::Tensor& power) const {
  return at::where(free_, 1 - (2 * up - 1).abs().pow(power), at::zeros_like(up)).mean();
}

at::Tensor Rounding::softly_rounded(const at::Tensor& up) const { return at::where(free_, lower_ + up, lower_); }

at::Tensor Rounding::rounded() const { return softly_rounded(up().ge(0.5).to(at::kFloat)); }

std::vector<at::Tensor> Rounding::weights(const at::Tensor& codes) const {
  std::vector<at::Tensor> weights = (scale_ * codes).split_with_sizes(sizes_);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i].view(shapes_[i]);
  return weights;
}

}  // namespace octet
