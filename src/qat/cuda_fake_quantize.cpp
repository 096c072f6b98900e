#include "src/qat/cuda_fake_quantize.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "kernels/fake_quantize/cuda_fake_quantize.h"
#include "src/common/error.h"
#include "src/model/device.h"
#include "src/qat/value_types.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x dense; y may be x.
void launch(const at::Tensor& x, const TensorQuantizer& q, at::Tensor& y, uint8_t* bits) {
  const c10::DeviceGuard guard(x.device());
  kernels::cuda_fake_quantize({.x = x.const_data_ptr(),
                               .y = y.mutable_data_ptr(),
                               .bits = bits,
                               .count = x.numel(),
                               .type = value_type(x),
                               .activation = q.activation,
                               .device_qparams = q.device,
                               .qparams = q.qparams},
                              current_stream(x.device()));
}

struct CudaFakeQuantize : torch::autograd::Function<CudaFakeQuantize> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const TensorQuantizer& q) {
    const at::Tensor x = q.in_place ? input : dense(input);
    at::Tensor y = q.in_place ? input : at::empty_like(x);
    at::Tensor bits = at::empty({(x.numel() + 7) / 8}, x.options().dtype(at::kByte));
    ctx->saved_data["strides"] = x.strides().vec();
    launch(x, q, y, bits.mutable_data_ptr<uint8_t>());
    if (q.in_place) ctx->mark_dirty({y});
    ctx->save_for_backward({bits});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor bits = ctx->get_saved_variables()[0];
    const std::vector<int64_t> strides = ctx->saved_data["strides"].toIntVector();
    at::Tensor dy = gradients[0];
    if (dy.strides() != at::IntArrayRef(strides)) {  // as a sum's expanded gradient
      dy = at::empty_strided(dy.sizes(), strides, dy.options());
      dy.copy_(gradients[0]);
    }
    at::Tensor dx = at::empty_strided(dy.sizes(), strides, dy.options());
    const c10::DeviceGuard guard(dy.device());
    kernels::cuda_fake_quantize_backward({.dy = dy.const_data_ptr(),
                                          .bits = bits.const_data_ptr<uint8_t>(),
                                          .dx = dx.mutable_data_ptr(),
                                          .count = dy.numel(),
                                          .type = value_type(dy)},
                                         current_stream(dy.device()));
    return {dx, at::Tensor()};
  }
};

void check_weight(const at::Tensor& w) {
  const bool outermost = w.dim() > 0 && (w.is_contiguous() || w.is_contiguous(at::MemoryFormat::ChannelsLast));
  if (w.scalar_type() != at::kFloat || !outermost)
    throw promise_error("weights to quantize on the GPU must be float32, contiguous or channels-last");
}

/// Kernel arguments of one weight; see WeightTensor.
int32_t channels_last_window(const at::Tensor& w) {
  return w.is_contiguous() ? 0 : static_cast<int32_t>(w.size(2) * w.size(3));
}

struct CudaQuantizeWeights : torch::autograd::Function<CudaQuantizeWeights> {
  static variable_list forward(AutogradContext* ctx, const at::TensorList& weights, const WeightQuantizer& quantizer) {
    const at::ScalarType type = scalar_type(quantizer.rules.type);
    variable_list quantized, saved;
    std::vector<kernels::WeightTensor> work;
    at::Tensor scales = quantizer.scales;
    float* scale = scales.mutable_data_ptr<float>();
    int32_t* flag = nullptr;
    if (quantizer.not_finite.defined()) flag = at::Tensor(quantizer.not_finite).mutable_data_ptr<int32_t>();
    for (const at::Tensor& w : weights) {
      check_weight(w);
      quantized.push_back(at::empty_like(w, w.options().dtype(type)));
      saved.push_back(w);
      const int32_t channels = static_cast<int32_t>(w.size(0));
      work.push_back({.weight = w.const_data_ptr<float>(),
                      .quantized = quantized.back().mutable_data_ptr(),
                      .scale = scale,
                      .not_finite = flag,
                      .channels = channels,
                      .per_channel = static_cast<int32_t>(w.numel() / channels),
                      .channels_last_window = channels_last_window(w)});
      scale += channels;
      if (flag != nullptr) ++flag;
    }
    if (scale != scales.const_data_ptr<float>() + scales.numel())
      throw promise_error("quantizing weights: " + std::to_string(scales.numel()) + " scales do not fit them");
    const c10::DeviceGuard guard(scales.device());
    kernels::cuda_quantize_weights(quantizer.rules, work.data(), static_cast<int>(work.size()),
                                   current_stream(scales.device()));
    saved.push_back(scales);
    ctx->save_for_backward(saved);
    ctx->saved_data["rule"] = static_cast<int64_t>(quantizer.rules.rule);
    ctx->saved_data["largest"] = static_cast<int64_t>(quantizer.rules.largest);
    return quantized;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    kernels::WeightRules rules;
    rules.rule = static_cast<kernels::ScaleRule>(ctx->saved_data["rule"].toInt());
    rules.largest = static_cast<int>(ctx->saved_data["largest"].toInt());
    rules.type = value_type(gradients[0]);
    const at::Tensor& scales = saved.back();
    const float* scale = scales.const_data_ptr<float>();
    variable_list result, laid_out;
    std::vector<kernels::WeightGradient> work;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& w = saved[i];
      at::Tensor dy = gradients[i];
      if (!(w.is_contiguous() ? dy.is_contiguous() : dy.is_contiguous(at::MemoryFormat::ChannelsLast))) {
        dy = at::empty_like(w, dy.options());
        dy.copy_(gradients[i]);
      }
      laid_out.push_back(dy);
      result.push_back(at::empty_like(w));
      const int32_t channels = static_cast<int32_t>(w.size(0));
      work.push_back({.dy = dy.const_data_ptr(),
                      .dx = result.back().mutable_data_ptr<float>(),
                      .weight = w.const_data_ptr<float>(),
                      .scale = scale,
                      .channels = channels,
                      .per_channel = static_cast<int32_t>(w.numel() / channels)});
      scale += channels;
    }
    const c10::DeviceGuard guard(scales.device());
    kernels::cuda_quantize_weights_backward(rules, work.data(), static_cast<int>(work.size()),
                                            current_stream(scales.device()));
    result.emplace_back();  // the quantizer
    return result;
  }
};

}  // namespace

at::Tensor cuda_fake_quantize(const at::Tensor& x, const TensorQuantizer& quantizer) {
  if (c10::GradMode::is_enabled() && x.requires_grad()) return CudaFakeQuantize::apply(x, quantizer);
  const at::Tensor flat = dense(x);
  at::Tensor y = quantizer.in_place ? flat : at::empty_like(flat);
  launch(flat, quantizer, y, nullptr);
  return y;
}

at::ScalarType autocast_type() {
  return at::autocast::is_autocast_enabled(at::kCUDA) ? at::autocast::get_autocast_dtype(at::kCUDA) : at::kFloat;
}

std::vector<at::Tensor> cuda_quantize_weights(const std::vector<at::Tensor>& weights, const WeightQuantizer& quantizer,
                                              at::ScalarType type) {
  if (weights.empty()) return {};
  WeightQuantizer typed = quantizer;
  typed.rules.type = value_type(type);
  return CudaQuantizeWeights::apply(at::TensorList(weights), typed);
}

}  // namespace octet
