// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

// Sizes of buckets, in values. The bucket of the first layers is filled last and its sum overlaps with nothing, so it
// is small. A sum on a GPU takes multiprocessors from concurrent kernels: between GPUs of one host, where sums are
// short, few large buckets cost least. Over a network the sums must start early.
constexpr int64_t kFirstLayers = 1 << 18, kBucket = 4 << 20, kBucketOfOneHost = 32 << 20;
constexpr int64_t kAligned = 4;  // values: the fused optimizers read 16 bytes at a time

/// Returns a view of all elements in the order of memory.
at::Tensor flat(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) throw promise_error("a gradient with holes cannot be exchanged");
  return tensor.as_strided({tensor.numel()}, {1});
}

}  // namespace

class GradientExchange::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientExchange& exchange, size_t slot) : exchange_(exchange), slot_(slot) {}
  void operator()(const at::Tensor&) override { exchange_.is_ready(slot_); }

 private:
  GradientExchange& exchange_;
  const size_t slot_;
};

GradientExchange::GradientExchange(Ranks& ranks, std::vector<at::Tensor> parameters, ExchangeType type,
                                   Ranks::Among among)
    : ranks_(ranks), type_(type == ExchangeType::fp16 ? at::kHalf : at::kFloat), among_(among) {
  place(parameters);
  for (size_t i = 0; i < slots_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(slots_[i].parameter, std::make_unique<Hook>(*this, i));
}

GradientExchange::~GradientExchange() {
  for (const Slot& slot : slots_) torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
}

/// Fills buckets in the order of the forward pass and then reverses them: sums start with the last layers.
void GradientExchange::place(const std::vector<at::Tensor>& parameters) {
  const bool short_sums = parameters.front().is_cuda() && ranks_.local_size() == ranks_.size();
  const int64_t usual = short_sums ? kBucketOfOneHost : kBucket;
  for (const at::Tensor& parameter : parameters) {
    const int64_t size = (parameter.numel() + kAligned - 1) / kAligned * kAligned;
    const int64_t limit = buckets_.size() == 1 ? kFirstLayers : usual;
    if (buckets_.empty() || buckets_.back().size + size > limit) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    slots_.push_back({.parameter = parameter, .bucket = buckets_.size() - 1, .begin = bucket.size});
    bucket.slots.push_back(slots_.size() - 1);
    bucket.size += size;
  }
  std::reverse(buckets_.begin(), buckets_.end());
  for (Slot& slot : slots_) slot.bucket = buckets_.size() - 1 - slot.bucket;
}

void GradientExchange::begin(int mode, const std::vector<at::Tensor>& also) {
  const c10::NoGradGuard no_grad;
  mode_ = mode;
  const auto known = has_gradient_.find(mode);
  for (Bucket& bucket : buckets_) {
    bucket.missing = 0;
    for (const size_t slot : bucket.slots) {
      slots_[slot].ready = false;
      bucket.missing += known == has_gradient_.end() || known->second[slot] ? 1 : 0;
    }
  }
  next_ = 0;
  under_way_.clear();
  start_also(also);
  in_step_ = true;
}

/// These tensors are known before the backward pass, which their sums overlap with.
void GradientExchange::start_also(const std::vector<at::Tensor>& also) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : also) by_type[tensor.scalar_type()].push_back(flat(tensor));
  also_.clear();
  for (auto& [type, parts] : by_type) {
    also_.push_back({parts, at::cat(parts)});
    under_way_.push_back(ranks_.start_sum(also_.back().values, among_));
  }
}

/// Called by the hook of a parameter whose gradient is complete. Starts the sums of all buckets that are filled, in
/// order.
void GradientExchange::is_ready(size_t index) {
  if (!in_step_) return;  // a backward pass that is not a step's
  Slot& slot = slots_[index];
  Bucket& bucket = buckets_[slot.bucket];
  if (slot.bucket < next_ || slot.ready)
    throw promise_error("a gradient came after its sum over all processes had begun");
  slot.ready = true;
  const auto known = has_gradient_.find(mode_);
  if (known != has_gradient_.end() && !known->second[index])
    throw promise_error("a parameter has a gradient that it did not have in the step before");
  --bucket.missing;
  const c10::NoGradGuard no_grad;
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) start(buckets_[next_++]);
}

/// Copies the gradients of a bucket into one tensor and starts its sum.
void GradientExchange::start(Bucket& bucket) {
  const auto ready = [&](size_t index) { return slots_[index].ready; };
  if (std::none_of(bucket.slots.begin(), bucket.slots.end(), ready)) return;
  const at::Device device = slots_[bucket.slots.front()].parameter.device();
  bucket.values = at::zeros({bucket.size}, at::TensorOptions(device).dtype(type_));
  std::vector<at::Tensor> gradients, places;
  for (const size_t index : bucket.slots) {
    const Slot& slot = slots_[index];
    if (!slot.ready) continue;
    gradients.push_back(flat(slot.parameter.grad()));
    places.push_back(bucket.values.narrow(0, slot.begin, slot.parameter.numel()));
  }
  at::_foreach_copy_(places, gradients);
  under_way_.push_back(ranks_.start_sum(bucket.values, among_));
}

void GradientExchange::finish() {
  const c10::NoGradGuard no_grad;
  in_step_ = false;
  started_early_ = next_;
  for (; next_ < buckets_.size(); ++next_) start(buckets_[next_]);
  std::vector<bool>& has_gradient = has_gradient_[mode_];
  has_gradient.clear();
  for (const Slot& slot : slots_) has_gradient.push_back(slot.ready);
  ranks_.finish(std::exchange(under_way_, {}));
  for (Bucket& bucket : buckets_) take(bucket);
  for (Together& together : also_) {
    std::vector<int64_t> sizes;
    for (const at::Tensor& part : together.parts) sizes.push_back(part.numel());
    at::_foreach_copy_(together.parts, together.values.split_with_sizes(sizes));
  }
  also_.clear();
}

/// Makes the gradients of a bucket views of its sum.
void GradientExchange::take(Bucket& bucket) {
  if (!bucket.values.defined()) return;
  const at::Tensor sums = std::exchange(bucket.values, {}).to(at::kFloat);
  for (const size_t index : bucket.slots) {
    Slot& slot = slots_[index];
    if (!slot.ready) continue;
    at::Tensor& gradient = slot.parameter.mutable_grad();
    gradient = sums.as_strided(gradient.sizes(), gradient.strides(), slot.begin);
  }
}

GradientSums::GradientSums(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), sums_(parameters_.size()) {}

void GradientSums::take() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sums, gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor gradient = std::exchange(at::Tensor(parameters_[i]).mutable_grad(), {});
    if (!gradient.defined()) continue;
    if (!sums_[i].defined()) {
      sums_[i] = gradient;
    } else {
      sums.push_back(sums_[i]);
      gradients.push_back(gradient);
    }
  }
  if (!sums.empty()) at::_foreach_add_(sums, gradients);
  added_ = std::move(gradients);
}

void GradientSums::give_back() {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (sums_[i].defined()) at::Tensor(parameters_[i]).mutable_grad() = std::exchange(sums_[i], {});
  added_.clear();
}

namespace {

constexpr double kGrowth = 2.0, kBackoff = 0.5;
constexpr double kClipEps = 1e-6;

}  // namespace

GradScaler::GradScaler(at::Device device, float initial_scale, long growth_interval)
    : scale_(at::full({}, initial_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_(at::zeros({}, at::TensorOptions(device).dtype(at::kInt))),
      growth_interval_(growth_interval) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

at::Tensor GradScaler::unscale(const std::vector<at::Tensor>& gradients) const {
  c10::NoGradGuard no_grad;
  at::Tensor found_inf = at::zeros({}, scale_.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  return found_inf;
}

void GradScaler::update(const at::Tensor& found_inf) {
  c10::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_, found_inf, kGrowth, kBackoff, growth_interval_);
}

at::Tensor joint_norm(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
}

void clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm) {
  const c10::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, (max_norm / (norm + kClipEps)).clamp_max(1.0));
}

}  // namespace octet
