// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/cuda_excite.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/training/excite.h"
#include "src/train/model/device.h"
#include "src/train/model/operators.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// `bits` may be undefined.
at::Tensor excited(const at::Tensor& x, const at::Tensor& factor, const ExciteQuantizer& q, const at::Tensor& bits) {
  at::Tensor y = at::empty_like(x);
  const c10::DeviceGuard guard(x.device());
  kernels::cuda_excite_quantize({.shape = image_channels(x),
                                 .x = x.const_data_ptr(),
                                 .factor = factor.const_data_ptr(),
                                 .activation = q.activation,
                                 .device_qparams = q.device,
                                 .y = y.mutable_data_ptr(),
                                 .bits = bits.defined() ? bits.mutable_data_ptr<uint8_t>() : nullptr},
                                current_stream(x.device()));
  return y;
}

struct CudaExcite : torch::autograd::Function<CudaExcite> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& factor,
                            const ExciteQuantizer& quantizer) {
    const at::Tensor bits = at::empty({x.numel() / 8}, x.options().dtype(at::kByte));
    at::Tensor y = excited(x, factor, quantizer, bits);
    ctx->save_for_backward({x, factor, bits});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_output) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &factor = saved[1];
    const at::Tensor dy = of_output[0].contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor dx = at::empty_like(x), dfactor = at::empty_like(factor);
    const kernels::ImageChannels shape = image_channels(x);
    const at::Tensor parts = at::empty({kernels::image_parts(shape), x.size(1)}, x.options().dtype(at::kFloat));
    const c10::DeviceGuard guard(x.device());
    kernels::cuda_excite_gradient({.shape = shape,
                                   .dy = dy.const_data_ptr(),
                                   .x = x.const_data_ptr(),
                                   .factor = factor.const_data_ptr(),
                                   .bits = saved[2].const_data_ptr<uint8_t>(),
                                   .parts = parts.mutable_data_ptr<float>(),
                                   .dx = dx.mutable_data_ptr(),
                                   .dfactor = dfactor.mutable_data_ptr()},
                                  current_stream(x.device()));
    return {dx, dfactor, at::Tensor()};
  }
};

}  // namespace

bool excite_fits(const at::Tensor& x, const at::Tensor& factor) {
  return is_image_channels(x) && is_image_channels(factor) && factor.scalar_type() == x.scalar_type() &&
         factor.size(0) == x.size(0) && factor.size(1) == x.size(1) && factor.size(2) == 1 && factor.size(3) == 1;
}

at::Tensor cuda_excite_quantize(const at::Tensor& x, const at::Tensor& factor, const ExciteQuantizer& quantizer) {
  if (c10::GradMode::is_enabled()) return CudaExcite::apply(x, factor, quantizer);
  return excited(x, factor, quantizer, {});
}

}  // namespace octet
