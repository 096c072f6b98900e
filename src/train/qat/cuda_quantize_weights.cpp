// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>

#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_weight(const at::Tensor& w) {
  const bool outermost = w.dim() > 0 && (w.is_contiguous() || w.is_contiguous(at::MemoryFormat::ChannelsLast));
  if (w.scalar_type() != at::kFloat || !outermost)
    throw promise_error("weights to quantize on the GPU must be float32, contiguous or channels-last");
}

/// Returns what WeightTensor::channels_last_window is for w.
int32_t channels_last_window(const at::Tensor& w) {
  return w.is_contiguous() ? 0 : static_cast<int32_t>(w.size(2) * w.size(3));
}

/// Returns by weight the index of its gain, -1 for none.
std::vector<int64_t> gain_indices(const WeightQuantizer& quantizer, size_t weights) {
  std::vector<int64_t> indices(weights, -1);
  int64_t next = 0;
  for (size_t i = 0; i < quantizer.has_gain.size(); ++i)
    if (quantizer.has_gain[i]) indices.at(i) = next++;
  if (next != static_cast<int64_t>(quantizer.gains.size()))
    throw promise_error("quantizing weights: " + std::to_string(quantizer.gains.size()) + " gains do not fit them");
  return indices;
}

/// Returns lowest and highest code of each weight in turn, as autograd's context keeps them.
std::vector<int64_t> flat(const std::vector<WeightCodes>& codes) {
  std::vector<int64_t> numbers;
  for (const WeightCodes& c : codes) numbers.insert(numbers.end(), {c.lowest, c.highest});
  return numbers;
}

struct CudaQuantizeWeights : torch::autograd::Function<CudaQuantizeWeights> {
  /// `scales` are the quantizer's, passed so that autograd sees them.
  static variable_list forward(AutogradContext* ctx, const at::TensorList& weights, const at::TensorList& gains,
                               const at::Tensor& scales, const WeightQuantizer& quantizer) {
    const at::ScalarType type = scalar_type(quantizer.rules.type);
    variable_list quantized, saved;
    std::vector<kernels::WeightTensor> work;
    float* scale = at::Tensor(scales).mutable_data_ptr<float>();
    int32_t* flag = nullptr;
    if (quantizer.not_finite.defined()) flag = at::Tensor(quantizer.not_finite).mutable_data_ptr<int32_t>();
    const std::vector<int64_t> gain_of = gain_indices(quantizer, weights.size());
    if (quantizer.codes.size() != weights.size())
      throw promise_error("quantizing weights: " + std::to_string(quantizer.codes.size()) + " ranges of codes for " +
                          std::to_string(weights.size()) + " weights");
    for (const at::Tensor& w : weights) {
      check_weight(w);
      const int64_t gain = gain_of[quantized.size()];
      quantized.push_back(at::empty_like(w, w.options().dtype(type)));
      saved.push_back(w);
      const int32_t channels = static_cast<int32_t>(w.size(0));
      work.push_back({.weight = w.const_data_ptr<float>(),
                      .quantized = quantized.back().mutable_data_ptr(),
                      .gain = gain < 0 ? nullptr : gains[gain].const_data_ptr<float>(),
                      .scale = scale,
                      .not_finite = flag,
                      .channels = channels,
                      .per_channel = static_cast<int32_t>(w.numel() / channels),
                      .channels_last_window = channels_last_window(w),
                      .codes = quantizer.codes[work.size()]});
      scale += channels;
      if (flag != nullptr) ++flag;
    }
    if (scale != scales.const_data_ptr<float>() + scales.numel())
      throw promise_error("quantizing weights: " + std::to_string(scales.numel()) + " scales do not fit them");
    const c10::DeviceGuard guard(scales.device());
    kernels::cuda_quantize_weights(quantizer.rules, work.data(), static_cast<int>(work.size()),
                                   current_stream(scales.device()));
    saved.insert(saved.end(), gains.begin(), gains.end());
    saved.push_back(scales);
    ctx->save_for_backward(saved);
    ctx->saved_data["gain_of"] = gain_of;
    ctx->saved_data["learns"] = scales.requires_grad();
    ctx->saved_data["rule"] = static_cast<int64_t>(quantizer.rules.rule);
    ctx->saved_data["codes"] = flat(quantizer.codes);
    return quantized;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    kernels::WeightRules rules;
    rules.rule = static_cast<kernels::ScaleRule>(ctx->saved_data["rule"].toInt());
    const std::vector<int64_t> codes = ctx->saved_data["codes"].toIntVector();
    rules.type = value_type(gradients[0]);
    const at::Tensor& scales = saved.back();
    const float* scale = scales.const_data_ptr<float>();
    const std::vector<int64_t> gain_of = ctx->saved_data["gain_of"].toIntVector();
    const size_t weights = gradients.size();
    variable_list result, laid_out, of_gains;
    std::vector<kernels::WeightGradient> work;
    for (size_t i = 0; i < weights; ++i) {
      const at::Tensor& w = saved[i];
      at::Tensor dy = gradients[i];
      if (!(w.is_contiguous() ? dy.is_contiguous() : dy.is_contiguous(at::MemoryFormat::ChannelsLast))) {
        dy = at::empty_like(w, dy.options());
        dy.copy_(gradients[i]);
      }
      laid_out.push_back(dy);
      result.push_back(at::empty_like(w));
      const int32_t channels = static_cast<int32_t>(w.size(0));
      const bool has_gain = gain_of[i] >= 0;
      if (has_gain) of_gains.push_back(at::empty({channels}, w.options()));
      work.push_back({.dy = dy.const_data_ptr(),
                      .dx = result.back().mutable_data_ptr<float>(),
                      .weight = w.const_data_ptr<float>(),
                      .scale = scale,
                      .gain = has_gain ? saved[weights + gain_of[i]].const_data_ptr<float>() : nullptr,
                      .dgain = has_gain ? of_gains.back().mutable_data_ptr<float>() : nullptr,
                      .channels = channels,
                      .per_channel = static_cast<int32_t>(w.numel() / channels),
                      .codes = {static_cast<int8_t>(codes[2 * i]), static_cast<int8_t>(codes[2 * i + 1])}});
      scale += channels;
    }
    at::Tensor dscales;
    if (ctx->saved_data["learns"].toBool()) {
      dscales = at::empty_like(scales);
      rules.scales = scales.const_data_ptr<float>();
      rules.dscales = dscales.mutable_data_ptr<float>();
    }
    const c10::DeviceGuard guard(scales.device());
    kernels::cuda_quantize_weights_backward(rules, work.data(), static_cast<int>(work.size()),
                                            current_stream(scales.device()));
    result.insert(result.end(), of_gains.begin(), of_gains.end());
    result.push_back(dscales);
    result.emplace_back();  // the quantizer
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> cuda_quantize_weights(const std::vector<at::Tensor>& weights, const WeightQuantizer& quantizer,
                                              at::ScalarType type) {
  if (weights.empty()) return {};
  WeightQuantizer typed = quantizer;
  typed.rules.type = value_type(type);
  return CudaQuantizeWeights::apply(at::TensorList(weights), at::TensorList(typed.gains), typed.scales, typed);
}

}  // namespace octet
