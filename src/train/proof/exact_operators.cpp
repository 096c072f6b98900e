// SPDX-License-Identifier: Apache-2.0
#include "src/train/proof/exact_operators.h"

#include <ATen/Context.h>
#include <ATen/ops/_conv_depthwise2d.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>

#include <algorithm>

#include "src/train/model/device.h"
#include "src/train/model/operators.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

constexpr double kExactFloat = 1 << 24;
constexpr int64_t kColumnBytes = int64_t{1} << 30;  // of inputs that column_conv2d copies at once
constexpr int64_t kOperatorGrain = 16384;           // a thread takes at least so many values

class WithoutNnpack {
 public:
  WithoutNnpack() : before_(at::globalContext().userEnabledNNPACK()) {
    at::globalContext().setUserEnabledNNPACK(false);
  }
  ~WithoutNnpack() { at::globalContext().setUserEnabledNNPACK(before_); }
  WithoutNnpack(const WithoutNnpack&) = delete;
  WithoutNnpack& operator=(const WithoutNnpack&) = delete;

 private:
  bool before_;
};

/// Returns the inputs of every output as a view in which they repeat: [N, OH, OW, groups, R, S, C / groups].
at::Tensor windows_of(const at::Tensor& x, const at::Tensor& weight, const Window& w, int groups) {
  at::Tensor image = x.permute({0, 2, 3, 1}).contiguous();
  if (w.pad != Padding{})
    image = at::constant_pad_nd(image, {0, 0, w.pad.left, w.pad.right, w.pad.top, w.pad.bottom}, 0);
  image = image.contiguous();
  const int64_t group_c = weight.size(1), r = weight.size(2), s = weight.size(3);
  const int64_t out_h = (image.size(1) - w.dilation_h * (r - 1) - 1) / w.stride_h + 1;
  const int64_t out_w = (image.size(2) - w.dilation_w * (s - 1) - 1) / w.stride_w + 1;
  const int64_t pixel = image.size(3), row = image.size(2) * pixel;
  return image.as_strided({image.size(0), out_h, out_w, groups, r, s, group_c},
                          {image.size(1) * row, w.stride_h * row, w.stride_w * pixel, group_c, w.dilation_h * row,
                           w.dilation_w * pixel, 1});
}

template <class Acc>
void requantize_on(const kernels::ChannelRule& rule, const at::Tensor& acc, at::Tensor& out) {
  const Acc* from = acc.const_data_ptr<Acc>();
  float* to = out.mutable_data_ptr<float>();
  const int64_t c = rule.channels, rows = acc.numel() / c;
#if OCTET_CUDA
  if (acc.is_cuda()) return kernels::cuda_requantize_rows(rule, from, rows, to, current_stream(acc.device()));
#endif
  share_among_threads(rows, std::max<int64_t>(1, kOperatorGrain / c), [&](int64_t begin, int64_t end) {
    kernels::ChannelRule share = rule;
    if (rule.residual) share.residual += begin * c;
    kernels::requantize_rows(share, from + begin * c, end - begin, to + begin * c);
  });
}

/// Returns a tensor like x, which is channels-last, with a value of type T for each of x's: on the CPU written by
/// on_cpu(from, count, to) in shares, on a GPU by on_gpu(from, count, to, stream), which is compiled for that alone.
template <class T, class OnCpu, class OnGpu>
at::Tensor each_value(const at::Tensor& x, const OnCpu& on_cpu, const OnGpu& on_gpu) {
  at::Tensor out = at::empty_like(x, c10::CppTypeToScalarType<T>::value);
  const float* from = x.const_data_ptr<float>();
  T* to = out.mutable_data_ptr<T>();
#if OCTET_CUDA
  if (x.is_cuda()) {
    on_gpu(from, x.numel(), to, current_stream(x.device()));
    return out;
  }
#endif
  share_among_threads(x.numel(), kOperatorGrain,
                      [&](int64_t begin, int64_t end) { on_cpu(from + begin, end - begin, to + begin); });
  return out;
}

}  // namespace

at::ScalarType exact_type(const at::Tensor& weight_codes, double reach) {
  const double largest = weight_codes.abs().flatten(1).sum(1, /*keepdim=*/false, at::kDouble).max().item<double>();
  return largest * reach < kExactFloat ? at::kFloat : at::kDouble;
}

at::Tensor column_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& window, int groups) {
  const int64_t k = weight.size(0), inner = weight.numel() / k;
  const at::Tensor matrices = weight.reshape({groups, k / groups, weight.size(1), weight.size(2), weight.size(3)})
                                  .permute({0, 3, 4, 2, 1})
                                  .reshape({groups, inner, k / groups});
  const at::Tensor windows = windows_of(x, weight, window, groups);
  const int64_t images = windows.size(0), out_h = windows.size(1), out_w = windows.size(2), pixels = out_h * out_w;
  const int64_t image_bytes = pixels * groups * inner * static_cast<int64_t>(weight.element_size());
  const int64_t part = std::max<int64_t>(1, kColumnBytes / image_bytes);
  const at::Tensor sums = at::empty({groups, images * pixels, k / groups}, weight.options());
  for (int64_t begin = 0; begin < images; begin += part) {
    const int64_t count = std::min(part, images - begin);
    const at::Tensor columns = windows.narrow(0, begin, count)
                                   .permute({3, 0, 1, 2, 4, 5, 6})
                                   .to(weight.scalar_type())
                                   .reshape({groups, count * pixels, inner});
    at::Tensor out = sums.narrow(1, begin * pixels, count * pixels);
    at::bmm_out(out, columns, matrices);
  }
  return sums.permute({1, 0, 2}).reshape({images, out_h, out_w, k}).contiguous().permute({0, 3, 1, 2});
}

at::Tensor exact_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& w, int groups) {
  if (x.is_cuda()) {
    if (groups == 1 || weight.size(1) > 1) return column_conv2d(x, weight, w, groups);
    const PaddedImage from = padded(x.to(weight.scalar_type()), w.pad, 0);
    return at::_conv_depthwise2d(from.image.contiguous(), weight, {weight.size(2), weight.size(3)}, c10::nullopt,
                                 {w.stride_h, w.stride_w}, from.pad, {w.dilation_h, w.dilation_w})
        .contiguous(at::MemoryFormat::ChannelsLast);
  }
  const WithoutNnpack without_nnpack;
  return convolve(x.to(weight.scalar_type()), weight.contiguous(at::MemoryFormat::ChannelsLast), {}, w, groups)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight) {
  return at::linear(x.to(weight.scalar_type()), weight);
}

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
  return each_value<float>(
      nhwc(x), [&](auto... work) { kernels::rescale_codes(rule, work...); },
      [&](auto... work) { kernels::cuda_rescale_codes(rule, work...); });
}

at::Tensor add_codes(const kernels::AddRule& rule, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = nhwc(a), y = nhwc(b);
  const float *begin = x.const_data_ptr<float>(), *other = y.const_data_ptr<float>();
  return each_value<float>(
      x,
      [&](const float* from, int64_t count, float* to) {
        kernels::add_codes(rule, from, other + (from - begin), count, to);
      },
      [&](const float* from, int64_t count, float* to, auto stream) {
        kernels::cuda_add_codes(rule, {from, other, count, to}, stream);
      });
}

at::Tensor store_codes(int32_t zero_point, const at::Tensor& centred) {
  return each_value<uint8_t>(
      nhwc(centred), [&](auto... work) { kernels::store_codes(zero_point, work...); },
      [&](auto... work) { kernels::cuda_store_codes(zero_point, work...); });
}

at::Tensor quantize_values(const QParams& qparams, const at::Tensor& x) {
  return each_value<uint8_t>(
      nhwc(x), [&](auto... work) { kernels::quantize_values(qparams, work...); },
      [&](auto... work) { kernels::cuda_quantize_values(qparams, work...); });
}

}  // namespace octet
