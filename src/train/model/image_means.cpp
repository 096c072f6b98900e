// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mean.h>

#include "src/train/model/operators.h"

#if OCTET_CUDA
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/training/excite.h"
#include "src/train/model/device.h"
#endif

namespace octet {

#if OCTET_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CudaImageMeans : torch::autograd::Function<CudaImageMeans> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const kernels::ImageChannels shape = image_channels(x);
    at::Tensor y = at::empty({x.size(0), x.size(1), 1, 1}, x.options(), at::MemoryFormat::ChannelsLast);
    const at::Tensor parts = at::empty({kernels::image_parts(shape), x.size(1)}, x.options().dtype(at::kFloat));
    const c10::DeviceGuard guard(x.device());
    kernels::cuda_image_means(shape, x.const_data_ptr(), parts.mutable_data_ptr<float>(), y.mutable_data_ptr(),
                              current_stream(x.device()));
    ctx->saved_data["height"] = x.size(2);
    ctx->saved_data["width"] = x.size(3);
    return y;
  }

  /// The gradient is one value for all pixels, which takes no memory until someone needs it to.
  static variable_list backward(AutogradContext* ctx, const variable_list& of_output) {
    const int64_t height = ctx->saved_data["height"].toInt(), width = ctx->saved_data["width"].toInt();
    const at::Tensor dy = of_output[0].div(static_cast<double>(height * width)).contiguous();
    return {dy.view({dy.size(0), dy.size(1), 1, 1}).expand({-1, -1, height, width})};
  }
};

}  // namespace
#endif

at::Tensor image_means(const at::Tensor& x) {
#if OCTET_CUDA
  if (is_image_channels(x)) return CudaImageMeans::apply(x);
#endif
  return x.mean({2, 3}, /*keepdim=*/true);
}

}  // namespace octet
