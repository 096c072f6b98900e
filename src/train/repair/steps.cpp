// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/steps.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
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

}  // namespace octet
