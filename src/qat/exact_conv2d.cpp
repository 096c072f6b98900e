#include "src/qat/exact_conv2d.h"

#include <ATen/Context.h>
#include <ATen/ops/_conv_depthwise2d.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <cstdint>

#include "src/model/convolve.h"
#include "src/model/padding.h"

namespace octet {
namespace {

constexpr double kExactFloat = 1 << 24;
constexpr int64_t kColumnBytes = int64_t{1} << 30;  // of the copied inputs of one part

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

/// The inputs under every output as a view that repeats them: [N, OH, OW, groups, R, S, C / groups].
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

}  // namespace octet
