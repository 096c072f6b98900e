#include "src/qat/requantize.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "src/model/device.h"
#include "src/model/parallel.h"

#if OCTET_CUDA
#include "kernels/requantize/cuda_requantize.h"
#endif

namespace octet {
namespace {

constexpr int64_t kGrain = 16384;  // values a thread takes at least

template <class Acc>
void requantize_on(const kernels::ChannelRule& rule, const at::Tensor& acc, at::Tensor& out) {
  const Acc* from = acc.const_data_ptr<Acc>();
  float* to = out.mutable_data_ptr<float>();
  const int64_t c = rule.channels, rows = acc.numel() / c;
#if OCTET_CUDA
  if (acc.is_cuda()) return kernels::cuda_requantize_rows(rule, from, rows, to, current_stream(acc.device()));
#endif
  share_among_threads(rows, std::max<int64_t>(1, kGrain / c), [&](int64_t begin, int64_t end) {
    kernels::ChannelRule share = rule;
    if (rule.residual) share.residual += begin * c;
    kernels::requantize_rows(share, from + begin * c, end - begin, to + begin * c);
  });
}

}  // namespace

at::Tensor nhwc(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

at::Tensor requantize(const RequantizeRule& epilogue, const at::Tensor& acc, const at::Tensor& residual) {
  const at::Tensor sums = nhwc(acc), other = residual.defined() ? nhwc(residual) : residual;
  at::Tensor out = at::empty_like(sums, at::kFloat);
  const kernels::ChannelRule rule{
      static_cast<int>(sums.size(1)),        epilogue.multiplier.const_data_ptr<float>(),
      epilogue.bias.const_data_ptr<float>(), other.defined() ? other.const_data_ptr<float>() : nullptr,
      epilogue.residual_multiplier,          epilogue.rounding};
  const bool wide = sums.scalar_type() == at::kDouble;
  wide ? requantize_on<double>(rule, sums, out) : requantize_on<float>(rule, sums, out);
  return out;
}

at::Tensor rescale_codes(const kernels::RescaleRule& rule, const at::Tensor& x) {
  const at::Tensor codes = nhwc(x);
  at::Tensor out = at::empty_like(codes);
  const float* from = codes.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
#if OCTET_CUDA
  if (x.is_cuda()) {
    kernels::cuda_rescale_codes(rule, from, codes.numel(), to, current_stream(x.device()));
    return out;
  }
#endif
  share_among_threads(codes.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::rescale_codes(rule, from + begin, end - begin, to + begin);
  });
  return out;
}

at::Tensor add_codes(const kernels::AddRule& rule, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = nhwc(a), y = nhwc(b);
  at::Tensor out = at::empty_like(x);
  const float *from_a = x.const_data_ptr<float>(), *from_b = y.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
#if OCTET_CUDA
  if (a.is_cuda()) {
    kernels::cuda_add_codes(rule, {from_a, from_b, x.numel(), to}, current_stream(a.device()));
    return out;
  }
#endif
  share_among_threads(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::add_codes(rule, from_a + begin, from_b + begin, end - begin, to + begin);
  });
  return out;
}

at::Tensor store_codes(int32_t zero_point, const at::Tensor& centred) {
  const at::Tensor codes = nhwc(centred);
  at::Tensor out = at::empty_like(codes, at::kByte);
  const float* from = codes.const_data_ptr<float>();
  uint8_t* to = out.mutable_data_ptr<uint8_t>();
#if OCTET_CUDA
  if (centred.is_cuda()) {
    kernels::cuda_store_codes(zero_point, from, codes.numel(), to, current_stream(centred.device()));
    return out;
  }
#endif
  share_among_threads(codes.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::store_codes(zero_point, from + begin, end - begin, to + begin);
  });
  return out;
}

at::Tensor quantize_values(const QParams& qparams, const at::Tensor& x) {
  const at::Tensor values = nhwc(x);
  at::Tensor out = at::empty_like(values, at::kByte);
  const float* from = values.const_data_ptr<float>();
  uint8_t* to = out.mutable_data_ptr<uint8_t>();
#if OCTET_CUDA
  if (x.is_cuda()) {
    kernels::cuda_quantize_values(qparams, from, values.numel(), to, current_stream(x.device()));
    return out;
  }
#endif
  share_among_threads(values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::quantize_values(qparams, from + begin, end - begin, to + begin);
  });
  return out;
}

}  // namespace octet
