// SPDX-License-Identifier: Apache-2.0
#include "src/quant/functions.h"
#include "src/train/qat/joined_operators.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/training/fake_quantize.h"
#include "src/quant/calibrate.h"
#include "src/train/model/operators.h"
#include "src/train/qat/quantizers.h"

namespace octet {
namespace {

/// Returns f' of all values, as the backward pass of LibTorch's function gives it, in double.
std::vector<double> slopes_of(const Function& function, const std::vector<double>& values) {
  const c10::AutoGradMode with_gradients(true);
  const at::Tensor x = at::tensor(values, at::kDouble).set_requires_grad(true);
  const at::Tensor slopes = torch::autograd::grad({applied(function, x).sum()}, {x})[0].contiguous();
  const double* const first = slopes.const_data_ptr<double>();
  return {first, first + slopes.numel()};
}

/// Returns FunctionTables::lookup_of() of all nodes.
std::vector<int> joined_lookups(const Prepared& prepared) {
  const std::vector<Node>& nodes = prepared.graph.nodes;
  const std::vector<std::vector<int>> lookups = only_lookups(prepared);
  std::vector<int> joined(nodes.size(), -1);
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    const Node& layer = nodes[n];
    if (!has_weight(layer.op) || layer.batch_norm.empty() || layer.inputs.size() != 1 || lookups[n].size() != 1)
      continue;
    const int lookup = lookups[n][0];
    if (nodes[lookup].groups == 1 && prepared.has_edge(n) && prepared.has_edge(lookup)) joined[n] = lookup;
  }
  return joined;
}

}  // namespace

kernels::FunctionTable function_table(const Node& lookup, const QParams& x, const QParams& y) {
  const kernels::Clamp activation = clamp_of(lookup.activation);
  std::vector<double> reals;
  std::vector<float> values;
  std::vector<bool> passes;
  for (int32_t code = x.quant_min; code <= x.quant_max; ++code) {
    reals.push_back(static_cast<double>(dequantize(code, x)));
    const auto value = static_cast<float>(evaluate(lookup.function, reals.back()));
    passes.push_back(activation.passes(value));
    values.push_back(activation(value));
  }
  std::vector<uint8_t> inside(values.size());
  kernels::fake_quantize(values.data(), values.size(), y, values.data(), inside.data());
  const std::vector<double> slopes = slopes_of(lookup.function, reals);
  kernels::FunctionTable table{};
  for (size_t i = 0; i < values.size(); ++i) {
    table.value[i] = values[i];
    table.slope[i] = inside[i] != 0 && passes[i] ? static_cast<float>(slopes[i]) : 0;
  }
  return table;
}

FunctionTables::FunctionTables(const Prepared& prepared, at::Device device)
    : prepared_(prepared), lookups_(joined_lookups(prepared)), row_(lookups_.size()) {
  for (int n = 0; n < static_cast<int>(lookups_.size()); ++n) {
    if (lookups_[n] < 0) continue;
    row_[n] = layers_.size();
    layers_.push_back(n);
  }
  made_.resize(layers_.size());
  host_.resize(layers_.size());
  if (any()) device_ = {layers_.size(), device};
}

void FunctionTables::set(const std::vector<QParams>& edges) {
  if (is_read_) write(edges);
  stale_ = !is_read_;
}

void FunctionTables::refresh(const std::function<std::vector<QParams>()>& edges) {
  if (!any()) return;
  if (stale_) write(edges());
  stale_ = false;
  is_read_ = true;
}

void FunctionTables::write(const std::vector<QParams>& edges) {
  bool changed = false;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int lookup = lookups_[layers_[i]];
    const Made wanted{edges[layers_[i]], edges[lookup]};
    if (made_[i] == wanted) continue;
    host_[i] = function_table(prepared_.graph.nodes[lookup], wanted.x, wanted.y);
    made_[i] = wanted;
    changed = true;
  }
  if (changed) device_.write(host_);
}

}  // namespace octet
