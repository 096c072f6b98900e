#include "src/qat/fake_quantize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>

#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/fake_quantize/learned_scale.h"
#include "src/common/error.h"
#include "src/model/parallel.h"
#include "src/model/value_types.h"
#include "src/qat/cpu_fake_quantize.h"
#include "src/qat/cuda_fake_quantize.h"

namespace octet {

void check_type(const at::Tensor& x) {
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)
    throw promise_error(std::string("fake_quantize takes float32, bfloat16 and (activations) float16, not ") +
                        c10::toString(x.scalar_type()));
}

at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& gradient) {
  if (gradient.strides() == like.strides()) return gradient;
  at::Tensor dy = at::empty_like(like, gradient.options());  // a sum's expanded gradient, or another memory format
  dy.copy_(gradient);
  return dy;
}

at::Tensor masked(const at::Tensor& dy, const at::Tensor& mask) {
  at::Tensor dx = at::empty_like(dy);
  const uint8_t* pass = mask.const_data_ptr<uint8_t>();
  share_among_threads(dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const size_t count = end - begin;
    if (dy.scalar_type() == at::kFloat)
      kernels::fake_quantize_backward(dy.const_data_ptr<float>() + begin, pass + begin, count,
                                      dx.mutable_data_ptr<float>() + begin);
    else
      kernels::fake_quantize_backward(bits(dy) + begin, pass + begin, count, mutable_bits(dx) + begin);
  });
  return dx;
}

at::Tensor forward_tensor(const at::Tensor& x, const QParams& q, at::Tensor& mask) {
  at::Tensor y = at::empty_like(x);
  uint8_t* pass = mask.defined() ? mask.mutable_data_ptr<uint8_t>() : nullptr;
  share_among_threads(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    uint8_t* m = pass ? pass + begin : nullptr;
    if (x.scalar_type() == at::kFloat)
      kernels::fake_quantize(x.const_data_ptr<float>() + begin, end - begin, q, y.mutable_data_ptr<float>() + begin, m);
    else
      kernels::fake_quantize(bits(x) + begin, end - begin, q, mutable_bits(y) + begin, m);
  });
  return y;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x dense with channels outermost in memory.
at::Tensor forward_channels(const at::Tensor& x, const std::vector<float>& scales, const WeightCodes& codes,
                            at::Tensor& mask) {
  at::Tensor y = at::empty_like(x);
  uint8_t* pass = mask.defined() ? mask.mutable_data_ptr<uint8_t>() : nullptr;
  const size_t channels = scales.size(), inner = x.numel() / channels;
  const kernels::ChannelQuantization q{scales.data(), channels, inner, codes.qparams(1.0f)};
  const int64_t grain = std::max<int64_t>(1, kGrain / static_cast<int64_t>(inner));
  share_among_threads(static_cast<int64_t>(channels), grain, [&](int64_t begin, int64_t end) {
    const kernels::Rows rows{static_cast<size_t>(begin), static_cast<size_t>(end)};
    if (x.scalar_type() == at::kFloat)
      kernels::fake_quantize(x.const_data_ptr<float>(), q, rows, y.mutable_data_ptr<float>(), pass);
    else
      kernels::fake_quantize(bits(x), q, rows, mutable_bits(y), pass);
  });
  return y;
}

struct FakeQuantizeTensor : torch::autograd::Function<FakeQuantizeTensor> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const QParams& q) {
    const at::Tensor x = dense(input);
    at::Tensor mask = at::empty_like(x, at::kByte);
    at::Tensor y = forward_tensor(x, q, mask);
    ctx->save_for_backward({mask});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor mask = ctx->get_saved_variables()[0];
    return {masked(laid_out_as(mask, gradients[0]), mask), at::Tensor()};
  }
};

struct FakeQuantizeChannels : torch::autograd::Function<FakeQuantizeChannels> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::vector<float>& scales,
                            const WeightCodes& codes) {
    at::Tensor mask = at::empty_like(x, at::kByte);
    at::Tensor y = forward_channels(x, scales, codes, mask);
    ctx->save_for_backward({mask});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor mask = ctx->get_saved_variables()[0];
    return {masked(laid_out_as(mask, gradients[0]), mask), at::Tensor(), at::Tensor()};
  }
};

/// Sum of dy times dy/ds over [begin, end) of two tensors of one layout.
double scale_gradient(const at::Tensor& x, const at::Tensor& dy, int64_t begin, int64_t end, const QParams& q) {
  const size_t count = end - begin;
  if (x.scalar_type() == at::kFloat)
    return kernels::scale_gradient(x.const_data_ptr<float>() + begin, dy.const_data_ptr<float>() + begin, count, q);
  return kernels::scale_gradient(bits(x) + begin, bits(dy) + begin, count, q);
}

/// As autograd's context keeps them.
std::vector<int64_t> numbers(const QParams& q) { return {q.zero_point, q.quant_min, q.quant_max}; }
QParams qparams_of(const std::vector<int64_t>& numbers, float scale) {
  return {scale, static_cast<int32_t>(numbers[0]), static_cast<int32_t>(numbers[1]), static_cast<int32_t>(numbers[2])};
}

struct LearnedChannels : torch::autograd::Function<LearnedChannels> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& scales,
                            const WeightCodes& codes) {
    at::Tensor mask = at::empty_like(x, at::kByte);
    const float* scale = scales.const_data_ptr<float>();
    at::Tensor y = forward_channels(x, {scale, scale + scales.numel()}, codes, mask);
    ctx->save_for_backward({mask, x, scales});
    ctx->saved_data["codes"] = numbers(codes.qparams(1));
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &mask = saved[0], &x = saved[1], &scales = saved[2], dy = laid_out_as(mask, gradients[0]);
    const std::vector<int64_t> codes = ctx->saved_data["codes"].toIntVector();
    const int64_t inner = x.numel() / scales.numel();
    at::Tensor dscales = at::empty_like(scales);
    float* dscale = dscales.mutable_data_ptr<float>();
    share_among_threads(scales.numel(), std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const QParams q = qparams_of(codes, scales.const_data_ptr<float>()[k]);
        const double factor = kernels::scale_gradient_factor(inner, q.quant_max, q.zero_point);
        dscale[k] = static_cast<float>(scale_gradient(x, dy, k * inner, (k + 1) * inner, q) * factor);
      }
    });
    return {masked(dy, mask), dscales, at::Tensor()};
  }
};

/// Itself, or contiguous: channels must be outermost in memory.
at::Tensor channels_outermost(const at::Tensor& weight, int64_t scales) {
  check_type(weight);
  if (weight.dim() == 0 || weight.size(0) != scales)
    throw promise_error("fake_quantize_weight: " + std::to_string(scales) + " scales do not fit the weight");
  const bool outermost = weight.is_contiguous() || weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  return outermost ? weight : weight.contiguous();
}

}  // namespace

at::Tensor fake_quantize(const at::Tensor& x, const QParams& qparams) {
#if OCTET_CUDA
  if (x.is_cuda()) return cuda_fake_quantize(x, {.qparams = qparams});
#endif
  // float16 has no kernel of its own; float32 holds all its values.
  if (x.scalar_type() == at::kHalf) return fake_quantize(x.to(at::kFloat), qparams).to(at::kHalf);
  check_type(x);
  if (c10::GradMode::is_enabled() && x.requires_grad()) return FakeQuantizeTensor::apply(x, qparams);
  at::Tensor no_mask;
  return forward_tensor(dense(x), qparams, no_mask);
}

at::Tensor fake_quantize_weight(const at::Tensor& weight, const std::vector<float>& scales, const WeightCodes& codes) {
  const at::Tensor w = channels_outermost(weight, static_cast<int64_t>(scales.size()));
#if OCTET_CUDA
  if (w.is_cuda()) {
    WeightQuantizer quantizer;
    quantizer.rules.rule = kernels::ScaleRule::given;
    quantizer.codes = {codes};
    quantizer.scales = at::tensor(scales).to(w.device());
    return cuda_quantize_weights({w}, quantizer, w.scalar_type())[0];
  }
#endif
  if (c10::GradMode::is_enabled() && w.requires_grad()) return FakeQuantizeChannels::apply(w, scales, codes);
  at::Tensor no_mask;
  return forward_channels(w, scales, codes, no_mask);
}

at::Tensor learned_fake_quantize_weight(const at::Tensor& weight, const at::Tensor& scales, const WeightCodes& codes) {
  const at::Tensor w = channels_outermost(weight, scales.numel());
#if OCTET_CUDA
  if (w.is_cuda()) {
    WeightQuantizer quantizer;
    quantizer.rules.rule = kernels::ScaleRule::given;
    quantizer.codes = {codes};
    quantizer.scales = scales;
    return cuda_quantize_weights({w}, quantizer, w.scalar_type())[0];
  }
#endif
  if (c10::GradMode::is_enabled() && (w.requires_grad() || scales.requires_grad()))
    return LearnedChannels::apply(w, scales, codes);
  const float* scale = scales.const_data_ptr<float>();
  at::Tensor no_mask;
  return forward_channels(w, {scale, scale + scales.numel()}, codes, no_mask);
}

}  // namespace octet
