// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/value_scales.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>

#include "src/train/model/device.h"
#include "src/train/model/numerics.h"

namespace octet {

ValueScales::ValueScales(QuantizedModel& model)
    : model_(model), classes_(model.prepared().graph), largest_(model.prepared().graph.nodes.size()) {}

void ValueScales::see(const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  model_.forward_partly(x, std::vector<bool>(largest_.size(), false), [&](int n, const at::Tensor& y) {
    const at::Tensor most = at::amax(y.abs(), {0, 2, 3});
    largest_[n] = largest_[n].defined() ? at::maximum(largest_[n], most) : most;
  });
}

std::vector<float> ValueScales::factors(const ScaleClasses::Powers& powers) const {
  ByChannel largest;
  for (const at::Tensor& of_node : largest_) {
    const at::Tensor plain = to_host(of_node);
    largest.emplace_back(plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel());
  }
  return classes_.factors(largest, powers);
}

Weights ValueScales::scaled(const std::vector<float>& factors) const {
  const c10::NoGradGuard no_grad;
  const Weights& weights = model_.weights();
  FloatParams params = float_params(weights);
  classes_.scale(factors, params);
  Weights result;
  for (const auto& [name, tensor] : weights) {
    at::Tensor changed = at::empty_like(tensor, tensor.options().requires_grad(false));
    changed.copy_(at::from_blob(params.at(name).data(), tensor.sizes(), at::kFloat));
    result.emplace(name, changed);
  }
  return result;
}

}  // namespace octet
