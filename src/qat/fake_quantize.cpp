#include "src/qat/fake_quantize.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "kernels/fake_quantize/fake_quantize.h"
#include "src/common/error.h"
#include "src/model/parallel.h"
#include "src/qat/cuda_fake_quantize.h"
#include "src/qat/value_types.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 32768;  // values a thread takes at least

/// bfloat16 as the kernels see it.
const uint16_t* bits(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }
uint16_t* mutable_bits(at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

void check_type(const at::Tensor& x) {
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)
    throw promise_error(std::string("fake_quantize takes float32, bfloat16 and (activations) float16, not ") +
                        c10::toString(x.scalar_type()));
}

/// Gradient through a mask; both of the mask's layout.
at::Tensor masked(const at::Tensor& gradient, const at::Tensor& mask) {
  at::Tensor dy = gradient;
  if (dy.strides() != mask.strides()) {  // as a sum's expanded gradient, or one of another memory format
    dy = at::empty_like(mask, gradient.options());
    dy.copy_(gradient);
  }
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

/// x dense. mask: like x in uint8, or undefined.
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
    return {masked(gradients[0], ctx->get_saved_variables()[0]), at::Tensor()};
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
    return {masked(gradients[0], ctx->get_saved_variables()[0]), at::Tensor(), at::Tensor()};
  }
};

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
  check_type(weight);
  if (weight.dim() == 0 || weight.size(0) != static_cast<int64_t>(scales.size()))
    throw promise_error("fake_quantize_weight: " + std::to_string(scales.size()) + " scales do not fit the weight");
  const bool outermost = weight.is_contiguous() || weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor w = outermost ? weight : weight.contiguous();
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

}  // namespace octet
