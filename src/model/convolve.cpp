#include "src/model/convolve.h"

#include <ATen/ops/conv2d.h>

#include "src/graph/window.h"
#include "src/model/padding.h"

namespace octet {
namespace {

/// LibTorch 2.11 convolves images of one channel into one column wrongly on the CPU (float32, stride 2) where strides,
/// of the image or of the weight, are those of channels-last memory. One channel's memory is the same in either order.
bool needs_plain_strides(const at::Tensor& x, const Window& w) {
  const Shape image = {1, static_cast<int>(x.size(2)), static_cast<int>(x.size(3))};
  return x.is_cpu() && x.size(1) == 1 && window_output(w, image).w == 1;
}

at::Tensor plain_strides(const at::Tensor& x) { return x.contiguous().view(x.sizes()); }

}  // namespace

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Window& w,
                    int groups) {
  const bool plain = needs_plain_strides(x, w);
  const PaddedImage from = padded(x, w.pad, 0);
  return at::conv2d(plain ? plain_strides(from.image) : from.image, plain ? plain_strides(weight) : weight, bias,
                    {w.stride_h, w.stride_w}, from.pad, {w.dilation_h, w.dilation_w}, groups);
}

}  // namespace octet
