#include "trainers/loop/freeze_oscillating.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/model/device.h"
#include "src/model/parallel.h"
#if OCTET_CUDA
#include "kernels/fake_quantize/cuda_oscillation.h"
#endif

namespace octet {
namespace {

constexpr int64_t kGrain = 32768;  // values a thread takes at least

}  // namespace

double FreezingThreshold::at(long step, long steps) const {
  const double share = static_cast<double>(step) / static_cast<double>(steps);
  return last + (first - last) / 2 * (1 + std::cos(std::numbers::pi * share));
}

OscillationFreezer::OscillationFreezer(const QuantizedModel& model) {
  const c10::NoGradGuard no_grad;
  const Prepared& prepared = model.prepared();
  const std::vector<at::Tensor> scales = by_node(model.weight_scale_tensor().detach(), prepared.graph);
  for (int n = 0; n < static_cast<int>(scales.size()); ++n) {
    const Node& node = prepared.graph.nodes[n];
    if (!has_weight(node.op)) continue;
    const at::Tensor weight = model.weights().at(node.name + ".weight").detach();
    const WeightCodes codes = prepared.weight_codes(n);
    std::vector<int64_t> one_a_channel(weight.dim(), 1);
    one_a_channel[0] = weight.size(0);
    const at::Tensor code = weight.div(scales[n].view(one_a_channel)).round_().clamp_(codes.lowest, codes.highest);
    layers_.push_back({node.name, weight, scales[n], code.to(at::kChar), at::zeros_like(weight, at::kChar),
                       at::zeros_like(weight), code, codes});
  }
}

kernels::OscillatingWeights OscillationFreezer::pointers(const Layer& layer) const {
  const auto channels = static_cast<int32_t>(layer.weight.size(0));
  return {.weight = layer.weight.mutable_data_ptr<float>(),
          .scale = layer.scale.const_data_ptr<float>(),
          .state = {layer.code.mutable_data_ptr<int8_t>(), layer.direction.mutable_data_ptr<int8_t>(),
                    layer.frequency.mutable_data_ptr<float>(), layer.mean.mutable_data_ptr<float>()},
          .channels = channels,
          .per_channel = static_cast<int32_t>(layer.weight.numel() / channels),
          .codes = layer.codes};
}

void OscillationFreezer::step(const at::Tensor& threshold, const at::Tensor& skip) {
  std::vector<kernels::OscillatingWeights> work;
  for (const Layer& layer : layers_) work.push_back(pointers(layer));
#if OCTET_CUDA
  if (const at::Device device = threshold.device(); device.is_cuda()) {
    const c10::DeviceGuard guard(device);
    kernels::cuda_freeze_oscillating(
        {.threshold = threshold.const_data_ptr<float>(), .skip = skip.const_data_ptr<float>()}, work.data(),
        static_cast<int>(work.size()), current_stream(device));
    return;
  }
#endif
  if (skip.item<float>() != 0) return;
  const auto most = static_cast<float>(threshold.item<double>());
  for (const kernels::OscillatingWeights& weights : work) {
    share_among_threads(weights.channels, std::max<int64_t>(1, kGrain / weights.per_channel),
                        [&](int64_t begin, int64_t end) { kernels::freeze_oscillating(weights, begin, end, most); });
  }
}

NamedTensors OscillationFreezer::state() const {
  NamedTensors state;
  for (const Layer& layer : layers_) {
    state.emplace(layer.name + ".code", layer.code);
    state.emplace(layer.name + ".direction", layer.direction);
    state.emplace(layer.name + ".frequency", layer.frequency);
    state.emplace(layer.name + ".mean", layer.mean);
  }
  return state;
}

double OscillationFreezer::frozen() const {
  int64_t frozen = 0, all = 0;
  for (const Layer& layer : layers_) {
    frozen += layer.direction.eq(kernels::kFrozen).sum().item<int64_t>();
    all += layer.direction.numel();
  }
  return static_cast<double>(frozen) / static_cast<double>(all);
}

}  // namespace octet
