// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/fake_quantize.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/training/fake_quantize.h"
#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

using kernels::LearnedRange;
using kernels::RangeGradient;
using kernels::RangeRule;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = c10::optional<at::Tensor>;

constexpr int64_t kGrain = 32768;  // a thread takes at least so many values

/// Returns f(T()), where T is the type in which the kernels see x's values: float, or uint16_t for bfloat16.
template <class F>
auto by_type(const at::Tensor& x, const F& f) {
  return x.scalar_type() == at::kFloat ? f(float{}) : f(uint16_t{});
}
template <class T>
const T* values(const at::Tensor& x) {
  return static_cast<const T*>(x.const_data_ptr());
}
template <class T>
T* mutable_values(at::Tensor& x) {
  return static_cast<T*>(x.mutable_data_ptr());
}

void check_type(const at::Tensor& x) {
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)
    throw promise_error(std::string("fake_quantize takes float32, bfloat16 and (activations) float16, not ") +
                        c10::toString(x.scalar_type()));
}

/// Returns the gradient dy where the mask, of its layout, is 1, and 0 elsewhere.
at::Tensor masked(const at::Tensor& dy, const at::Tensor& mask) {
  at::Tensor dx = at::empty_like(dy);
  const uint8_t* pass = mask.const_data_ptr<uint8_t>();
  share_among_threads(dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
    by_type(dy, [&]<class T>(T) {
      kernels::fake_quantize_backward(values<T>(dy) + begin, pass + begin, end - begin, mutable_values<T>(dx) + begin);
    });
  });
  return dx;
}

/// Returns dequantize(quantize(x)) of a dense x. Writes `mask`, like x in uint8, if it is defined.
at::Tensor forward_tensor(const at::Tensor& x, const QParams& q, at::Tensor& mask) {
  at::Tensor y = at::empty_like(x);
  uint8_t* pass = mask.defined() ? mask.mutable_data_ptr<uint8_t>() : nullptr;
  share_among_threads(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    uint8_t* m = pass ? pass + begin : nullptr;
    by_type(x, [&]<class T>(T) {
      kernels::fake_quantize(values<T>(x) + begin, end - begin, q, mutable_values<T>(y) + begin, m);
    });
  });
  return y;
}

/// Returns x, dense with channels outermost in memory, fake-quantized with one scale a channel. scales: float
/// [channels].
at::Tensor forward_channels(const at::Tensor& x, const at::Tensor& scales, const WeightCodes& codes, at::Tensor& mask) {
  at::Tensor y = at::empty_like(x);
  uint8_t* pass = mask.defined() ? mask.mutable_data_ptr<uint8_t>() : nullptr;
  const size_t channels = scales.numel(), inner = x.numel() / channels;
  const kernels::ChannelQuantization q{scales.const_data_ptr<float>(), channels, inner, codes.qparams(1.0f)};
  const int64_t grain = std::max<int64_t>(1, kGrain / static_cast<int64_t>(inner));
  share_among_threads(static_cast<int64_t>(channels), grain, [&](int64_t begin, int64_t end) {
    const kernels::Rows rows{static_cast<size_t>(begin), static_cast<size_t>(end)};
    by_type(x, [&]<class T>(T) { kernels::fake_quantize(values<T>(x), q, rows, mutable_values<T>(y), pass); });
  });
  return y;
}

/// Codes and zero point as autograd's context keeps them, and back.
std::vector<int64_t> numbers(const QParams& q) { return {q.zero_point, q.quant_min, q.quant_max}; }
QParams qparams_of(const std::vector<int64_t>& numbers, float scale) {
  return {scale, static_cast<int32_t>(numbers[0]), static_cast<int32_t>(numbers[1]), static_cast<int32_t>(numbers[2])};
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
    return {masked(with_strides(gradients[0], mask.strides()), mask), at::Tensor()};
  }
};

struct FakeQuantizeChannels : torch::autograd::Function<FakeQuantizeChannels> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& scales,
                            const WeightCodes& codes) {
    at::Tensor mask = at::empty_like(x, at::kByte);
    at::Tensor y = forward_channels(x, scales, codes, mask);
    const bool learns = scales.requires_grad();
    ctx->save_for_backward(learns ? variable_list{mask, x, scales} : variable_list{mask});
    ctx->saved_data["codes"] = numbers(codes.qparams(1));
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &mask = saved[0], dy = with_strides(gradients[0], mask.strides());
    at::Tensor dscales;
    if (saved.size() > 1) dscales = scale_gradients(saved[1], saved[2], ctx->saved_data["codes"].toIntVector(), dy);
    return {masked(dy, mask), dscales, at::Tensor()};
  }

 private:
  static at::Tensor scale_gradients(const at::Tensor& x, const at::Tensor& scales, const std::vector<int64_t>& codes,
                                    const at::Tensor& dy) {
    const int64_t inner = x.numel() / scales.numel();
    at::Tensor dscales = at::empty_like(scales);
    float* dscale = dscales.mutable_data_ptr<float>();
    share_among_threads(scales.numel(), std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const QParams q = qparams_of(codes, scales.const_data_ptr<float>()[k]);
        const double factor = kernels::scale_gradient_factor(inner, q.quant_max, q.zero_point);
        const double sum = by_type(x, [&]<class T>(T) {
          return kernels::range_gradient(values<T>(x) + k * inner, values<T>(dy) + k * inner, inner, RangeRule::lsq, q)
              .value;
        });
        dscale[k] = static_cast<float>(sum * factor);
      }
    });
    return dscales;
  }
};

LearnedRange range_of(RangeRule rule, const at::Tensor& value, const at::Tensor& offset) {
  return {rule, value.item<float>(), offset.defined() ? offset.item<float>() : 0};
}

/// Returns the sums over x and dy, of one layout. They do not depend on the number of threads: shares have a fixed size
/// and are added in order.
RangeGradient range_gradient(const at::Tensor& x, const at::Tensor& dy, RangeRule rule, const QParams& q) {
  std::vector<RangeGradient> shares((x.numel() + kGrain - 1) / kGrain);
  share_among_threads(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kGrain, count = std::min(kGrain, x.numel() - first);
      shares[i] = by_type(x, [&]<class T>(T) {
        return kernels::range_gradient(values<T>(x) + first, values<T>(dy) + first, count, rule, q);
      });
    }
  });
  RangeGradient sum;
  for (const RangeGradient& share : shares) {
    sum.value += share.value;
    sum.offset += share.offset;
  }
  return sum;
}

struct LearnedTensor : torch::autograd::Function<LearnedTensor> {
  /// q has the codes and the zero point, as LearnedRange::qparams() takes them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& value,
                            const OptionalTensor& offset, RangeRule rule, const QParams& q) {
    const at::Tensor x = dense(input), offset_or_none = offset.value_or(at::Tensor());
    at::Tensor mask = at::empty_like(x, at::kByte);
    at::Tensor y = forward_tensor(x, range_of(rule, value, offset_or_none).qparams(q), mask);
    ctx->save_for_backward({mask, x, value, offset_or_none});
    ctx->saved_data["rule"] = static_cast<int64_t>(rule);
    ctx->saved_data["codes"] = numbers(q);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &mask = saved[0], &x = saved[1], dy = with_strides(gradients[0], mask.strides());
    const LearnedRange range = range_of(static_cast<RangeRule>(ctx->saved_data["rule"].toInt()), saved[2], saved[3]);
    const QParams q = range.qparams(qparams_of(ctx->saved_data["codes"].toIntVector(), 1));
    const RangeGradient sums = range_gradient(x, dy, range.rule, q);
    const double factor = kernels::range_gradient_factor(range.rule, x.numel() / x.size(0), q);
    const at::Tensor dvalue = at::empty_like(saved[2]).fill_(sums.value * factor);
    at::Tensor doffset;
    if (saved[3].defined()) doffset = at::empty_like(saved[3]).fill_(sums.offset * factor);
    return {masked(dy, mask), dvalue, doffset, at::Tensor(), at::Tensor()};
  }
};

/// Returns the weight, or a copy of it with channels outermost in memory.
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
  return learned_fake_quantize_weight(weight, at::tensor(scales).to(weight.device()), codes);
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
    return FakeQuantizeChannels::apply(w, scales, codes);
  at::Tensor no_mask;
  return forward_channels(w, scales, codes, no_mask);
}

kernels::RangeRule rule_of(EdgeScales scales) {
  return scales == EdgeScales::lsq_plus ? RangeRule::lsq_plus : RangeRule::lsq;
}

std::vector<LearnedEdge> learned_edges(const at::Tensor& values, const at::Tensor& offsets, EdgeScales scales,
                                       size_t nodes) {
  std::vector<LearnedEdge> edges(nodes);
  if (!values.defined()) return edges;
  const std::vector<at::Tensor> value_of = values.unbind(0);
  const std::vector<at::Tensor> offset_of =
      offsets.defined() ? offsets.unbind(0) : std::vector<at::Tensor>(value_of.size());
  for (size_t n = 0; n < nodes; ++n) edges[n] = {value_of[n], offset_of[n], rule_of(scales)};
  return edges;
}

at::Tensor learned_fake_quantize(const at::Tensor& x, const LearnedEdge& learned, const QParams& qparams) {
#if OCTET_CUDA
  if (x.is_cuda()) return cuda_fake_quantize(x, {.qparams = qparams, .learned = learned});
#endif
  if (x.scalar_type() == at::kHalf) return learned_fake_quantize(x.to(at::kFloat), learned, qparams).to(at::kHalf);
  check_type(x);
  const at::Tensor &value = learned.value, &offset = learned.offset;
  const bool trains = x.requires_grad() || value.requires_grad() || (offset.defined() && offset.requires_grad());
  if (c10::GradMode::is_enabled() && trains)
    return LearnedTensor::apply(x, value, offset.defined() ? OptionalTensor(offset) : c10::nullopt, learned.rule,
                                qparams);
  at::Tensor no_mask;
  return forward_tensor(dense(x), range_of(learned.rule, value, offset).qparams(qparams), no_mask);
}

}  // namespace octet
