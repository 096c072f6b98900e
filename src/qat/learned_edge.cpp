#include "src/qat/learned_edge.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/fake_quantize/range_gradient.h"
#include "src/model/parallel.h"
#include "src/model/value_types.h"
#include "src/qat/cpu_fake_quantize.h"
#include "src/qat/cuda_fake_quantize.h"

namespace octet {
namespace {

using kernels::LearnedRange;
using kernels::RangeGradient;
using kernels::RangeRule;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = c10::optional<at::Tensor>;

LearnedRange range_of(RangeRule rule, const at::Tensor& value, const at::Tensor& offset) {
  return {rule, value.item<float>(), offset.defined() ? offset.item<float>() : 0};
}

/// Of [begin, end) of two tensors of one layout.
RangeGradient range_gradient(const at::Tensor& x, const at::Tensor& dy, int64_t begin, int64_t end,
                             const LearnedRange& range, const QParams& q) {
  const size_t count = end - begin;
  if (x.scalar_type() == at::kFloat)
    return kernels::range_gradient(x.const_data_ptr<float>() + begin, dy.const_data_ptr<float>() + begin, count, range,
                                   q);
  return kernels::range_gradient(bits(x) + begin, bits(dy) + begin, count, range, q);
}

/// The same over a whole tensor: shares of a fixed size, added in order, with any number of threads.
RangeGradient range_gradient(const at::Tensor& x, const at::Tensor& dy, const LearnedRange& range, const QParams& q) {
  std::vector<RangeGradient> shares((x.numel() + kGrain - 1) / kGrain);
  share_among_threads(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      shares[i] = range_gradient(x, dy, i * kGrain, std::min((i + 1) * kGrain, x.numel()), range, q);
  });
  RangeGradient sum;
  for (const RangeGradient& share : shares) {
    sum.value += share.value;
    sum.offset += share.offset;
  }
  return sum;
}

void clip_mask(const at::Tensor& x, const kernels::ClipEnds& ends, at::Tensor& mask) {
  uint8_t* const pass = mask.mutable_data_ptr<uint8_t>();
  share_among_threads(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (x.scalar_type() == at::kFloat)
      kernels::clip_mask(x.const_data_ptr<float>() + begin, end - begin, ends, pass + begin);
    else
      kernels::clip_mask(bits(x) + begin, end - begin, ends, pass + begin);
  });
}

struct LearnedTensor : torch::autograd::Function<LearnedTensor> {
  /// q: codes and zero point, as range.qparams() takes them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& value,
                            const OptionalTensor& offset, RangeRule rule, const QParams& q) {
    const at::Tensor x = dense(input), offset_or_none = offset.value_or(at::Tensor());
    const LearnedRange range = range_of(rule, value, offset_or_none);
    const QParams used = range.qparams(q);
    at::Tensor mask = at::empty_like(x, at::kByte);
    at::Tensor y = forward_tensor(x, used, mask);
    if (rule == RangeRule::pact) clip_mask(x, kernels::ClipEnds(range.value, used), mask);
    ctx->save_for_backward({mask, x, value, offset_or_none});
    ctx->saved_data["rule"] = static_cast<int64_t>(rule);
    ctx->saved_data["codes"] = std::vector<int64_t>{q.zero_point, q.quant_min, q.quant_max};
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &mask = saved[0], &x = saved[1], dy = laid_out_as(mask, gradients[0]);
    const std::vector<int64_t> codes = ctx->saved_data["codes"].toIntVector();
    const LearnedRange range = range_of(static_cast<RangeRule>(ctx->saved_data["rule"].toInt()), saved[2], saved[3]);
    const QParams q = range.qparams(
        {1, static_cast<int32_t>(codes[0]), static_cast<int32_t>(codes[1]), static_cast<int32_t>(codes[2])});
    const RangeGradient sums = range_gradient(x, dy, range, q);
    const double factor = kernels::range_gradient_factor(range.rule, x.numel() / x.size(0), q);
    const at::Tensor dvalue = at::empty_like(saved[2]).fill_(sums.value * factor);
    at::Tensor doffset;
    if (saved[3].defined()) doffset = at::empty_like(saved[3]).fill_(sums.offset * factor);
    return {masked(dy, mask), dvalue, doffset, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

kernels::RangeRule rule_of(EdgeScales scales) {
  if (scales == EdgeScales::lsq_plus) return RangeRule::lsq_plus;
  return scales == EdgeScales::pact ? RangeRule::pact : RangeRule::lsq;
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
