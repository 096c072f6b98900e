// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/steps.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>
#include <utility>

namespace octet {
namespace {

constexpr double kPush = 10, kFirstPower = 20, kLastPower = 2, kWarmUp = 0.2;
constexpr double kMeanDecay = 0.9, kSquareDecay = 0.999, kEpsilon = 1e-8;
constexpr int kRows = 1024;
enum Column : uint8_t { kPowerColumn, kPushColumn, kColumns };

double power_at(double share_done) {
  const double since = std::max(0.0, share_done - kWarmUp) / (1 - kWarmUp);
  return kLastPower + (kFirstPower - kLastPower) * 0.5 * (1 + std::cos(since * std::numbers::pi));
}

/// Makes Drop draw other numbers than those that choose images from the same seed.
constexpr uint64_t kOtherStream = 0x9E3779B97F4A7C15;

}  // namespace

Steps::Steps(const StepPlan& plan, int64_t images, at::Device device)
    : plan_(plan), images_(images), random_(at::detail::createCPUGenerator(plan.seed)) {
  const int64_t rows = std::min(kRows, plan.steps);
  const at::TensorOptions there(device);
  chosen_ = at::empty({rows, plan.batch_size}, there.dtype(at::kLong));
  numbers_ = at::empty({rows, kColumns}, there.dtype(at::kFloat));
  row_ = at::zeros({1}, there.dtype(at::kLong));
}

void Steps::prepare(int step) {
  const int64_t rows = chosen_.size(0);
  if (step % rows != 0) return;
  chosen_.copy_(at::randint(images_, chosen_.sizes(), random_, at::TensorOptions(at::kLong)));
  at::Tensor numbers = at::empty(numbers_.sizes(), at::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    const auto done = static_cast<double>(step + r);
    const double share_done = done / plan_.steps;
    float* row = numbers.mutable_data_ptr<float>() + r * kColumns;
    row[kPowerColumn] = static_cast<float>(power_at(share_done));
    row[kPushColumn] = static_cast<float>(share_done < kWarmUp ? 0 : kPush);
  }
  numbers_.copy_(numbers);
  row_.zero_();
}

Steps::Row Steps::next() {
  const at::Tensor numbers = numbers_.index_select(0, row_)[0];
  Row row{chosen_.index_select(0, row_)[0], numbers[kPowerColumn], numbers[kPushColumn]};
  row_.add_(1);
  return row;
}

Adam::Adam(std::vector<at::Tensor> values) : values_(std::move(values)) {
  for (const at::Tensor& value : values_) {
    means_.push_back(at::zeros_like(value));
    squares_.push_back(at::zeros_like(value));
    steps_.push_back(at::zeros({}, value.options()));
  }
}

void Adam::step(const std::vector<at::Tensor>& gradients, const at::Tensor& rate) {
  for (at::Tensor& count : steps_) count.add_(1);
  at::_fused_adam_(values_, gradients, means_, squares_, /*max_exp_avg_sqs=*/{}, steps_, rate, kMeanDecay, kSquareDecay,
                   /*weight_decay=*/0, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

at::Tensor learning_rate(double rate, at::Device device) {
  return at::full({}, rate, at::TensorOptions(device).dtype(device.is_cpu() ? at::kDouble : at::kFloat));
}

Drop::Drop(double share, uint64_t seed, at::Device device) : share_(share) {
  if (!any()) return;
  if (device.is_cpu()) {
    random_ = at::detail::createCPUGenerator(seed ^ kOtherStream);
    return;
  }
  random_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(random_.mutex());
  before_ = random_.get_state();
  random_.set_current_seed(seed ^ kOtherStream);
}

Drop::~Drop() {
  if (!before_.defined()) return;
  const std::lock_guard<std::mutex> lock(random_.mutex());
  random_.set_state(before_);
}

at::Tensor Drop::operator()(const at::Tensor& quantized, const at::Tensor& before) const {
  if (!any()) return quantized;
  const at::Tensor dropped =
      at::empty_like(quantized, quantized.options().dtype(at::kBool)).bernoulli_(share_, random_);
  return at::where(dropped, before, quantized);
}

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
