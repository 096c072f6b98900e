// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/quantized_model.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/training/weights.h"
#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

using kernels::SparseWeights;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGroupGrain = 8192;  // a thread takes at least so many groups

SparseWeights work_of(const at::Tensor& weight, const WeightRows& rows) {
  const bool dense = weight.is_contiguous() || weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  if (weight.scalar_type() != at::kFloat || !dense)
    throw promise_error("2:4 sparse weights must be float32, contiguous or channels-last");
  return {.weight = weight.const_data_ptr<float>(),
          .channels = static_cast<int32_t>(weight.size(0)),
          .inputs = static_cast<int32_t>(rows.inputs),
          .taps = static_cast<int32_t>(rows.taps),
          .channels_last = !weight.is_contiguous()};
}

/// Calls f(weights, channel, group) for all groups, on the CPU.
template <class F>
void for_groups(const std::vector<SparseWeights>& work, const F& f) {
  for (const SparseWeights& weights : work) {
    share_among_threads(weights.channels, std::max<int64_t>(1, kGroupGrain / weights.groups()),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t channel = begin; channel < end; ++channel)
                            for (int32_t group = 0; group < weights.groups(); ++group)
                              f(weights, static_cast<int32_t>(channel), group);
                        });
  }
}

struct KeepTwoOfFour : torch::autograd::Function<KeepTwoOfFour> {
  static variable_list forward(AutogradContext*, const at::TensorList& weights, const std::vector<WeightRows>& rows) {
    variable_list kept;
    std::vector<SparseWeights> work;
    for (size_t i = 0; i < weights.size(); ++i) {
      kept.push_back(at::empty_like(weights[i]));
      work.push_back(work_of(weights[i], rows[i]));
      work.back().to = kept.back().mutable_data_ptr<float>();
    }
#if OCTET_CUDA
    if (const at::Device device = weights[0].device(); device.is_cuda()) {
      const c10::DeviceGuard guard(device);
      kernels::cuda_keep_two_of_four(work.data(), static_cast<int>(work.size()), current_stream(device));
      return kept;
    }
#endif
    for_groups(work, kernels::keep_two_of_four);
    return kept;
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    variable_list through = gradients;
    through.emplace_back();  // the rows
    return through;
  }
};

}  // namespace

Weights sparse_weights(const Prepared& prepared, const Weights& weights) {
  Weights used = weights;
  std::vector<std::string> names;
  std::vector<at::Tensor> dense;
  std::vector<WeightRows> rows;
  for (int n = 0; n < static_cast<int>(prepared.sparse.size()); ++n) {
    if (!prepared.sparse[n]) continue;
    names.push_back(prepared.graph.nodes[n].name + ".weight");
    dense.push_back(weights.at(names.back()));
    rows.push_back(weight_rows(prepared.graph, n));
  }
  if (names.empty()) return used;
  const variable_list kept = KeepTwoOfFour::apply(at::TensorList(dense), rows);
  for (size_t i = 0; i < names.size(); ++i) used.at(names[i]) = kept[i];
  return used;
}

void decay_pruned(const Prepared& prepared, const Weights& weights, double rate) {
  std::vector<SparseWeights> work;
  at::Device device = at::kCPU;
  for (int n = 0; n < static_cast<int>(prepared.sparse.size()); ++n) {
    if (!prepared.sparse[n]) continue;
    const at::Tensor& weight = weights.at(prepared.graph.nodes[n].name + ".weight");
    const at::Tensor& gradient = weight.grad();
    if (!gradient.defined()) continue;
    if (gradient.strides() != weight.strides())
      throw promise_error("a gradient of 2:4 sparse weights lies in memory as they do not");
    device = weight.device();
    work.push_back(work_of(weight, weight_rows(prepared.graph, n)));
    work.back().to = gradient.mutable_data_ptr<float>();
  }
  const auto step = static_cast<float>(rate);
#if OCTET_CUDA
  if (device.is_cuda()) {
    const c10::DeviceGuard guard(device);
    return kernels::cuda_decay_pruned(work.data(), static_cast<int>(work.size()), step, current_stream(device));
  }
#endif
  for_groups(work, [&](const SparseWeights& w, int32_t channel, int32_t group) {
    kernels::decay_pruned(w, channel, group, step);
  });
}

}  // namespace octet
