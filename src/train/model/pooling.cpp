// SPDX-License-Identifier: Apache-2.0
// Pooling: maxima of windows and means of whole images, on a GPU by octet's kernels.
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>

#include <limits>

#include "src/train/model/operators.h"
#if OCTET_CUDA
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/training/excite.h"
#include "kernels/training/max_pool.h"
#include "src/train/model/device.h"
#endif

namespace octet {

#if OCTET_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor channels_last(int n, int c, int h, int w, const at::TensorOptions& options) {
  return at::empty({n, c, h, w}, options, at::MemoryFormat::ChannelsLast);
}

/// Keeps one byte an output for the backward pass: which value of its window was the maximum.
struct CudaMaxPool : torch::autograd::Function<CudaMaxPool> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const kernels::MaxPool& pool, bool trains) {
    at::Tensor y = channels_last(pool.images, pool.channels, pool.out_height, pool.out_width, x.options()), chosen;
    if (trains) chosen = at::empty_like(y, y.options().dtype(at::kByte));
    const c10::DeviceGuard guard(x.device());
    kernels::cuda_max_pool(pool, x.const_data_ptr(), y.mutable_data_ptr(),
                           trains ? chosen.mutable_data_ptr<uint8_t>() : nullptr, current_stream(x.device()));
    ctx->save_for_backward({chosen});
    ctx->saved_data["pool"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(pool));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_output) {
    const kernels::MaxPool& pool = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["pool"].toCapsule())->pool;
    const at::Tensor dy = of_output[0].contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor chosen = ctx->get_saved_variables()[0];
    at::Tensor dx = channels_last(pool.images, pool.channels, pool.height, pool.width, dy.options());
    const c10::DeviceGuard guard(dy.device());
    kernels::cuda_max_pool_backward(pool, dy.const_data_ptr(), chosen.const_data_ptr<uint8_t>(), dx.mutable_data_ptr(),
                                    current_stream(dy.device()));
    return {dx, at::Tensor(), at::Tensor()};
  }

 private:
  struct Kept : torch::CustomClassHolder {
    explicit Kept(const kernels::MaxPool& pool_) : pool(pool_) {}
    const kernels::MaxPool pool;
  };
};

bool has_kernel(const at::Tensor& x, const Window& window) {
  const at::ScalarType type = x.scalar_type();
  return x.is_cuda() && x.numel() > 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
         window.kernel_h * window.kernel_w <= kernels::kMostPooled;
}

int pooled(int64_t extent, int64_t pad, int kernel, int stride) {
  return static_cast<int>((extent + 2 * pad - kernel) / stride + 1);
}

at::Tensor cuda_max_pool(const PaddedImage& padded, const Window& w) {
  const at::Tensor& x = padded.image;
  const kernels::MaxPool pool{.images = static_cast<int>(x.size(0)),
                              .height = static_cast<int>(x.size(2)),
                              .width = static_cast<int>(x.size(3)),
                              .channels = static_cast<int>(x.size(1)),
                              .out_height = pooled(x.size(2), padded.pad[0], w.kernel_h, w.stride_h),
                              .out_width = pooled(x.size(3), padded.pad[1], w.kernel_w, w.stride_w),
                              .kernel_h = w.kernel_h,
                              .kernel_w = w.kernel_w,
                              .stride_h = w.stride_h,
                              .stride_w = w.stride_w,
                              .pad_top = static_cast<int>(padded.pad[0]),
                              .pad_left = static_cast<int>(padded.pad[1]),
                              .type = value_type(x)};
  return CudaMaxPool::apply(x, pool, c10::GradMode::is_enabled() && x.requires_grad());
}

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

at::Tensor max_pool(const at::Tensor& image, const Window& w) {
  const PaddedImage x = padded(image, w.pad, -std::numeric_limits<double>::infinity());
#if OCTET_CUDA
  if (has_kernel(x.image, w)) return cuda_max_pool(x, w);
#endif
  return at::max_pool2d(x.image, {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, x.pad);
}

at::Tensor image_means(const at::Tensor& x) {
#if OCTET_CUDA
  if (is_image_channels(x)) return CudaImageMeans::apply(x);
#endif
  return x.mean({2, 3}, /*keepdim=*/true);
}

}  // namespace octet
