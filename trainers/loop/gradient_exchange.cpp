#include "trainers/loop/gradient_exchange.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "src/common/error.h"

namespace octet {
namespace {

// Values. The bucket of the first layers is the last to be filled, and nothing hides its sum: it is small. A sum on a
// GPU takes multiprocessors from the kernels that run beside it, whose last ones then run alone: between GPUs of one
// host, where sums are short, few of them cost least. Over a network they must begin early.
constexpr int64_t kFirstLayers = 1 << 18, kBucket = 4 << 20, kBucketOfOneHost = 32 << 20;
constexpr int64_t kAligned = 4;  // values: the fused optimizers read 16 bytes at a time

/// All elements in the order of memory.
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

void GradientExchange::place(const std::vector<at::Tensor>& parameters) {
  const bool short_sums = parameters.front().is_cuda() && ranks_.local_size() == ranks_.size();
  const int64_t usual = short_sums ? kBucketOfOneHost : kBucket;
  for (const at::Tensor& parameter : parameters) {
    const int64_t size = (parameter.numel() + kAligned - 1) / kAligned * kAligned;
    const int64_t most = buckets_.size() == 1 ? kFirstLayers : usual;
    if (buckets_.empty() || buckets_.back().size + size > most) buckets_.emplace_back();
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

/// Known before the backward pass: it hides them.
void GradientExchange::start_also(const std::vector<at::Tensor>& also) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : also) by_type[tensor.scalar_type()].push_back(flat(tensor));
  also_.clear();
  for (auto& [type, parts] : by_type) {
    also_.push_back({parts, at::cat(parts)});
    under_way_.push_back(ranks_.start_sum(also_.back().values, among_));
  }
}

void GradientExchange::is_ready(size_t index) {
  if (!in_step_) return;  // another backward pass than a step's
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

}  // namespace octet
