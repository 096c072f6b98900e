#include "src/qat/reconstruct/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "src/common/error.h"

namespace octet::reconstruct {
namespace {

// h(V) = clamp(sigmoid(V) (kTop - kBottom) + kBottom, 0, 1)
constexpr double kTop = 1.1, kBottom = -0.1;
constexpr double kPush = 1, kFirstPower = 20, kLastPower = 2, kWarmUp = 0.2, kRate = 1e-2;

/// [K] beside a weight of K rows.
at::Tensor by_row(const at::Tensor& of_rows, const at::Tensor& weight) {
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  return of_rows.view(shape);
}

}  // namespace

Rounding::Rounding(const at::Tensor& weight, const at::Tensor& scale, const WeightCodes& codes)
    : scale_(by_row(scale, weight)) {
  const at::Tensor steps = weight / scale_;
  nearest_ = steps.round().clamp(codes.lowest, codes.highest);
  const at::Tensor reach = at::maximum(steps / codes.lowest, steps / codes.highest).flatten(1);
  const at::Tensor largest = reach.eq(reach.amax(1, /*keepdim=*/true)).view_as(weight);
  free_ = steps.ge(codes.lowest).logical_and(steps.lt(codes.highest)).logical_and(largest.logical_not());
  lower_ = at::where(free_, steps.floor(), nearest_);
  const at::Tensor share = ((steps - lower_).clamp(0, 1) - kBottom) / (kTop - kBottom);
  logits_ = (share / (1 - share)).log().detach().requires_grad_(true);
}

at::Tensor Rounding::up() const { return (logits_.sigmoid() * (kTop - kBottom) + kBottom).clamp(0, 1); }

at::Tensor Rounding::weight(const at::Tensor& up) const { return scale_ * at::where(free_, lower_ + up, lower_); }

at::Tensor Rounding::push(const at::Tensor& up, double power) const {
  return at::where(free_, 1 - (2 * up - 1).abs().pow(power), at::zeros_like(up)).sum();
}

at::Tensor Rounding::rounded() const { return at::where(free_, lower_ + up().ge(0.5).to(at::kFloat), lower_); }

at::Tensor Rounding::values(const at::Tensor& codes) const { return scale_ * codes; }

int64_t Rounding::moved(const at::Tensor& codes) const { return codes.ne(nearest_).sum().item<int64_t>(); }

Adam::Adam(at::Tensor values)
    : values_(std::move(values)), mean_(at::zeros_like(values_)), square_(at::zeros_like(values_)) {}

void Adam::step() {
  const c10::NoGradGuard no_grad;
  const at::Tensor gradient = values_.grad();
  ++steps_;
  mean_.mul_(0.9).add_(gradient, 0.1);
  square_.mul_(0.999).addcmul_(gradient, gradient, 0.001);
  const at::Tensor deviation = (square_ / (1 - std::pow(0.999, steps_))).sqrt_().add_(1e-8);
  values_.addcdiv_(mean_, deviation, -kRate / (1 - std::pow(0.9, steps_)));
  values_.mutable_grad().reset();
}

Push push_at(double share_done, int64_t weights) {
  if (share_done < kWarmUp) return {0, kFirstPower};
  const double since = (share_done - kWarmUp) / (1 - kWarmUp);
  return {kPush / static_cast<double>(weights),
          kLastPower + (kFirstPower - kLastPower) * 0.5 * (1 + std::cos(since * std::numbers::pi))};
}

at::Tensor squared_error(const at::Tensor& y, const at::Tensor& wanted) {
  return (y - wanted).square().mean() * y.size(1);
}

at::Tensor chosen(const at::Tensor& x, int count, at::Generator& random) {
  return at::randint(x.size(0), {count}, random, at::TensorOptions(at::kLong)).to(x.device());
}

at::Tensor tensor_of(const std::vector<float>& values, const at::Tensor& like) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat)
      .clone()
      .to(like.device());
}

void put_codes(QuantizedModel& model, const Node& node, const Rounding& rounding, const at::Tensor& codes) {
  at::Tensor weight = model.weights().at(node.name + ".weight");
  weight.copy_(rounding.values(codes));
  const at::Tensor again = tensor_of(model.weight_scales().at(node.name), weight);
  if (!(weight / by_row(again, weight)).round().equal(codes))
    throw promise_error("'" + node.name + "': the rounded weights have other scales");
}

}  // namespace octet::reconstruct
