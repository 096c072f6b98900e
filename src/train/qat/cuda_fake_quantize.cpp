// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/fake_quantize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/training/fake_quantize.h"
#include "src/train/model/device.h"
#include "src/train/model/model.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = c10::optional<at::Tensor>;

bool is_channels_last(const at::Tensor& x) { return x.is_contiguous(at::MemoryFormat::ChannelsLast); }

struct Addends {
  at::Tensor bias, residual;  // undefined: none

  bool any() const { return bias.defined() || residual.defined(); }
  /// Returns whether the kernel can add them while it quantizes x.
  bool fit(const at::Tensor& x) const {
    if (bias.defined() && !is_channels_last(x)) return false;
    return !residual.defined() || (residual.scalar_type() == x.scalar_type() && residual.strides() == x.strides());
  }
};

/// What is kept for the backward pass; null: it is not.
struct Kept {
  uint8_t* bits = nullptr;
  int16_t* slopes = nullptr;
};

const float* pointer(const at::Tensor& scalar) { return scalar.defined() ? scalar.const_data_ptr<float>() : nullptr; }

kernels::LearnedPointers pointers(const LearnedEdge& learned) {
  return {.rule = learned.rule, .value = pointer(learned.value), .offset = pointer(learned.offset)};
}

/// Returns x, which is dense, quantized: in x itself if q.in_place.
at::Tensor quantized(const at::Tensor& input, Addends addends, const TensorQuantizer& q, const Kept& kept) {
  at::Tensor x = input;
  bool in_place = q.in_place;
  if (addends.any() && (q.observe || !addends.fit(x))) {
    x = dense(add_up({.value = x, .bias = addends.bias, .residual = addends.residual, .owned = in_place}));
    in_place = true;
    addends = {};
  }
  if (q.observe) q.observe(x);
  at::Tensor y = in_place ? x : at::empty_like(x);
  const c10::DeviceGuard guard(x.device());
  kernels::cuda_fake_quantize({.x = x.const_data_ptr(),
                               .y = y.mutable_data_ptr(),
                               .bits = kept.bits,
                               .count = x.numel(),
                               .type = value_type(x),
                               .bias = addends.bias.defined() ? addends.bias.const_data_ptr<float>() : nullptr,
                               .channels = addends.bias.defined() ? static_cast<int>(addends.bias.numel()) : 1,
                               .residual = addends.residual.defined() ? addends.residual.const_data_ptr() : nullptr,
                               .activation = q.activation,
                               .device_qparams = q.device,
                               .qparams = q.qparams,
                               .learned = pointers(q.learned),
                               .slopes = kept.slopes},
                              current_stream(x.device()));
  return y;
}

/// A learned range in the backward pass: what the forward pass kept, and its codes and zero point.
struct Learned {
  at::Tensor slopes;  // undefined: it does not learn
  kernels::RangeRule rule = kernels::RangeRule::lsq;
  const QParams* device = nullptr;
  QParams qparams;
};

struct Gradients {
  at::Tensor dx, dbias, dscale, doffset;  // undefined: there is none
};

Gradients gradients(const at::Tensor& dy, const at::Tensor& bits, bool biased, const Learned& learned) {
  at::Tensor dx = at::empty_strided(dy.sizes(), dy.strides(), dy.options()), dbias, dscale, doffset, scale_parts;
  const c10::DeviceGuard guard(dy.device());
  const CudaStream stream = current_stream(dy.device());
  const at::TensorOptions floats = dy.options().dtype(at::kFloat);
  const auto scale_gradient = [&](int parts) {
    kernels::ScaleGradient work{.rule = learned.rule, .device_qparams = learned.device, .qparams = learned.qparams};
    if (!learned.slopes.defined()) return work;
    dscale = at::empty({}, floats);
    if (learned.rule == kernels::RangeRule::lsq_plus) {
      doffset = at::empty({}, floats);
      work.doffset = doffset.mutable_data_ptr<float>();
    }
    scale_parts = at::empty({doffset.defined() ? 2 * parts : parts}, floats);
    work.slopes = learned.slopes.const_data_ptr<int16_t>();
    work.parts = scale_parts.mutable_data_ptr<float>();
    work.dscale = dscale.mutable_data_ptr<float>();
    work.values = dy.numel() / dy.size(0);
    return work;
  };
  if (biased && is_channels_last(dy)) {
    const long channels = dy.size(1), rows = channels == 0 ? 0 : dy.numel() / channels;
    dbias = at::empty({channels}, floats);
    at::Tensor parts = at::empty({kernels::bias_gradient_parts(rows, static_cast<int>(channels)), channels}, floats);
    kernels::cuda_bias_gradient(
        {.dy = dy.const_data_ptr(),
         .bits = bits.const_data_ptr<uint8_t>(),
         .dx = dx.mutable_data_ptr(),
         .parts = parts.mutable_data_ptr<float>(),
         .dbias = dbias.mutable_data_ptr<float>(),
         .rows = rows,
         .channels = static_cast<int>(channels),
         .type = value_type(dy),
         .scale = scale_gradient(kernels::bias_gradient_scale_parts(rows, static_cast<int>(channels)))},
        stream);
  } else {
    kernels::cuda_fake_quantize_backward({.dy = dy.const_data_ptr(),
                                          .bits = bits.const_data_ptr<uint8_t>(),
                                          .dx = dx.mutable_data_ptr(),
                                          .count = dy.numel(),
                                          .type = value_type(dy),
                                          .scale = scale_gradient(kernels::fake_quantize_backward_parts(dy.numel()))},
                                         stream);
    if (biased) dbias = dx.sum({0, 2, 3}, /*keepdim=*/false, at::kFloat);
  }
  return {dx, dbias, dscale, doffset};
}

struct CudaFakeQuantize : torch::autograd::Function<CudaFakeQuantize> {
  /// `value` and the offset after it are q.learned's, passed so that autograd sees them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const OptionalTensor& bias,
                            const OptionalTensor& residual, const OptionalTensor& value, const OptionalTensor&,
                            const TensorQuantizer& q) {
    const at::Tensor x = q.in_place ? input : dense(input);
    at::Tensor bits = at::empty({(x.numel() + 7) / 8}, x.options().dtype(at::kByte)), slopes;
    Kept kept{.bits = bits.mutable_data_ptr<uint8_t>()};
    if (value) {
      slopes = at::empty({x.numel()}, x.options().dtype(at::kShort));
      kept.slopes = slopes.mutable_data_ptr<int16_t>();
      ctx->saved_data["device"] = reinterpret_cast<int64_t>(q.device);
      ctx->saved_data["rule"] = static_cast<int64_t>(q.learned.rule);
      ctx->saved_data["codes"] = std::vector<int64_t>{q.qparams.zero_point, q.qparams.quant_min, q.qparams.quant_max};
    }
    ctx->saved_data["strides"] = x.strides().vec();
    ctx->saved_data["biased"] = bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    at::Tensor y = quantized(x, {bias.value_or(at::Tensor()), residual.value_or(at::Tensor())}, q, kept);
    if (q.in_place) ctx->mark_dirty({y});
    ctx->save_for_backward({bits, slopes});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_outputs) {
    const std::vector<int64_t> strides = ctx->saved_data["strides"].toIntVector();
    const at::Tensor dy = with_strides(of_outputs[0], strides);
    const variable_list saved = ctx->get_saved_variables();
    Learned learned{.slopes = saved[1]};
    if (learned.slopes.defined()) {
      const std::vector<int64_t> codes = ctx->saved_data["codes"].toIntVector();
      learned.rule = static_cast<kernels::RangeRule>(ctx->saved_data["rule"].toInt());
      learned.device = reinterpret_cast<const QParams*>(ctx->saved_data["device"].toInt());
      learned.qparams = {1, static_cast<int32_t>(codes[0]), static_cast<int32_t>(codes[1]),
                         static_cast<int32_t>(codes[2])};
    }
    const auto [dx, dbias, dscale, doffset] = gradients(dy, saved[0], ctx->saved_data["biased"].toBool(), learned);
    return {dx, dbias, ctx->saved_data["residual"].toBool() ? dx : at::Tensor(), dscale, doffset, at::Tensor()};
  }
};

OptionalTensor optional(const at::Tensor& x) { return x.defined() ? OptionalTensor(x) : c10::nullopt; }

bool needs_gradient(const at::Tensor& x) { return x.defined() && x.requires_grad(); }

}  // namespace

at::Tensor cuda_fake_quantize(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                              const TensorQuantizer& quantizer) {
  const LearnedEdge& learned = quantizer.learned;
  const bool trains = needs_gradient(x) || needs_gradient(bias) || needs_gradient(residual) ||
                      needs_gradient(learned.value) || needs_gradient(learned.offset);
  if (c10::GradMode::is_enabled() && trains)
    return CudaFakeQuantize::apply(x, optional(bias), optional(residual), optional(learned.value),
                                   optional(learned.offset), quantizer);
  return quantized(dense(x), {bias, residual}, quantizer, {});
}

at::Tensor cuda_fake_quantize(const at::Tensor& x, const TensorQuantizer& quantizer) {
  return cuda_fake_quantize(x, {}, {}, quantizer);
}

}  // namespace octet
