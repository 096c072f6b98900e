// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/joined_operators.h"

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

/// What is kept for the backward pass.
struct NormKept {
  at::Tensor numbers;  ///< float [kNormNumbers, C]
  at::Tensor bits;     ///< undefined: there is no backward pass
};

kernels::NormQuantization norm_quantization(const at::Tensor& x, const at::Tensor& numbers, const NormQuantizer& q,
                                            const at::Tensor& y) {
  return {.x = batch_norm_share(x),
          .numbers = numbers.const_data_ptr<float>(),
          .activation = q.activation,
          .device_qparams = &q.edge->qparams,
          .function = q.function,
          .y = y.mutable_data_ptr()};
}

at::Tensor norm_quantized(const at::Tensor& x, const at::Tensor& residual, const BatchNormTensors& t,
                          const NormQuantizer& q, NormKept& kept) {
  const c10::DeviceGuard guard(x.device());
  const CudaStream stream = current_stream(x.device());
  const at::Tensor parts = batch_norm_parts(x);
  kept.numbers = at::empty({kernels::kNormNumbers, x.size(1)}, parts.options());
  kernels::cuda_norm_statistics({.x = batch_norm_share(x),
                                 .weight = t.weight.const_data_ptr<float>(),
                                 .bias = t.bias.const_data_ptr<float>(),
                                 .running_mean = t.running_mean.mutable_data_ptr<float>(),
                                 .running_var = t.running_var.mutable_data_ptr<float>(),
                                 .momentum = static_cast<float>(kBatchNormMomentum),
                                 .epsilon = static_cast<float>(q.epsilon),
                                 .parts = parts.mutable_data_ptr<float>(),
                                 .numbers = kept.numbers.mutable_data_ptr<float>()},
                                stream);
  at::Tensor y = at::empty_like(x);
  kernels::NormQuantization work = norm_quantization(x, kept.numbers, q, y);
  if (residual.defined()) work.residual = residual.const_data_ptr();
  if (kept.bits.defined()) work.bits = kept.bits.mutable_data_ptr<uint8_t>();
  if (q.observe) kernels::cuda_norm_observe(work, q.edge, stream);
  kernels::cuda_norm_quantize(work, stream);
  return y;
}

/// Returns what norm_quantized() gave without a residual, from x and the numbers that it kept.
at::Tensor norm_quantized_again(const at::Tensor& x, const at::Tensor& numbers, const NormQuantizer& q) {
  const c10::DeviceGuard guard(x.device());
  at::Tensor y = at::empty_like(x);
  kernels::cuda_norm_quantize(norm_quantization(x, numbers, q, y), current_stream(x.device()));
  return y;
}

/// Returns whether kernels can read the tensor's memory by 16 bytes.
bool is_aligned(const at::Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0; }

/// Returns a gradient with these strides that kernels can read by 16 bytes; undefined stays undefined.
at::Tensor readable(const at::Tensor& gradient, at::IntArrayRef strides) {
  const at::Tensor dense = with_strides(gradient, strides);
  return !dense.defined() || is_aligned(dense) ? dense : dense.clone();
}

/// Returns whether a gradient [N, C, H, W] is one value for all pixels of an image, whose memory is [N, C].
bool is_shared(const at::Tensor& gradient) {
  return gradient.defined() && gradient.dim() == 4 && gradient.stride(3) == 0 && gradient.stride(2) == 0 &&
         gradient.stride(1) == 1 && gradient.stride(0) == gradient.size(1) && is_aligned(gradient);
}

/// What the backward pass gets for y and its twin.
struct NormReaders {
  at::Tensor dy, also;  ///< undefined: none
  long also_rows = 1;

  NormReaders(const at::Tensor& first, const at::Tensor& second, const at::Tensor& x) : dy(first), also(second) {
    if (!dy.defined() || (is_shared(dy) && also.defined() && !is_shared(also))) std::swap(dy, also);
    dy = readable(dy, x.strides());
    if (is_shared(also)) {
      also_rows = x.size(2) * x.size(3);
    } else {
      also = readable(also, x.strides());
    }
  }
};

struct NormGradients {
  at::Tensor dx, dweight, dbias, dresidual;  ///< the last is undefined if there is none
};

NormGradients norm_gradients(const NormReaders& readers, const at::Tensor& x, const at::Tensor& bits,
                             const at::Tensor& numbers, const at::Tensor& weight, bool residual,
                             const NormQuantizer& q) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor parts = batch_norm_parts(x), slopes = at::empty({3, x.size(1)}, parts.options());
  NormGradients d{at::empty_like(x), at::empty_like(weight), at::empty_like(weight),
                  residual ? at::empty_like(x) : at::Tensor()};
  kernels::cuda_norm_quantize_gradient({.x = batch_norm_share(x),
                                        .dy = readers.dy.const_data_ptr(),
                                        .also = readers.also.defined() ? readers.also.const_data_ptr() : nullptr,
                                        .also_rows = readers.also_rows,
                                        .bits = bits.const_data_ptr<uint8_t>(),
                                        .numbers = numbers.const_data_ptr<float>(),
                                        .weight = weight.const_data_ptr<float>(),
                                        .function = q.function,
                                        .device_qparams = &q.edge->qparams,
                                        .activation = q.activation,
                                        .masked = residual ? d.dresidual.mutable_data_ptr() : nullptr,
                                        .parts = parts.mutable_data_ptr<float>(),
                                        .slopes = slopes.mutable_data_ptr<float>(),
                                        .dweight = d.dweight.mutable_data_ptr<float>(),
                                        .dbias = d.dbias.mutable_data_ptr<float>(),
                                        .dx = d.dx.mutable_data_ptr()},
                                       current_stream(x.device()));
  return d;
}

struct CudaNormQuantize : torch::autograd::Function<CudaNormQuantize> {
  /// `weight` and `bias` are those of `tensors`, passed so that autograd sees them. Returns y and its twin.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, const c10::optional<at::Tensor>& residual,
                               const BatchNormTensors& tensors, const NormQuantizer& quantizer, NormKept& kept) {
    kept.bits = at::empty({(x.numel() + 7) / 8}, x.options().dtype(at::kByte));
    const BatchNormTensors all{weight, bias, tensors.running_mean, tensors.running_var};
    const at::Tensor y = norm_quantized(x, residual.value_or(at::Tensor()), all, quantizer, kept);
    ctx->save_for_backward({x, weight, kept.numbers, kept.bits});
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["quantizer"] = c10::IValue::make_capsule(c10::make_intrusive<KeptQuantizer>(quantizer));
    ctx->set_materialize_grads(false);
    return {y, y.variable_data()};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_outputs) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const NormReaders readers(of_outputs[0], of_outputs[1], x);
    variable_list result(7);  // the last three are no tensors
    if (!readers.dy.defined()) return result;
    const NormQuantizer& quantizer =
        c10::static_intrusive_pointer_cast<KeptQuantizer>(ctx->saved_data["quantizer"].toCapsule())->quantizer;
    NormGradients d =
        norm_gradients(readers, x, saved[3], saved[2], saved[1], ctx->saved_data["residual"].toBool(), quantizer);
    result[0] = std::move(d.dx);
    result[1] = std::move(d.dweight);
    result[2] = std::move(d.dbias);
    result[3] = std::move(d.dresidual);
    return result;
  }

 private:
  struct KeptQuantizer : torch::CustomClassHolder {
    explicit KeptQuantizer(const NormQuantizer& quantizer_) : quantizer(quantizer_) {}
    const NormQuantizer quantizer;
  };
};

bool is_half_rows(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) && x.dim() == 4 &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

bool norm_quantize_fits(const Unfinished& y) {
  const at::Tensor &x = y.value, &r = y.residual;
  if (y.bias.defined() || !is_half_rows(x) || x.size(1) % 8 != 0 || x.numel() < 2 * x.size(1) || !is_aligned(x))
    return false;
  return !r.defined() ||
         (r.scalar_type() == x.scalar_type() && r.sizes() == x.sizes() && r.strides() == x.strides() && is_aligned(r));
}

Twins cuda_norm_quantize(const Unfinished& y, const BatchNormTensors& t, const NormQuantizer& quantizer) {
  NormKept kept;
  if (!c10::GradMode::is_enabled()) {
    const at::Tensor output = norm_quantized(y.value, y.residual, t, quantizer, kept);
    return {output, output, nullptr};
  }
  const variable_list twins = CudaNormQuantize::apply(
      y.value, t.weight, t.bias, y.residual.defined() ? c10::optional<at::Tensor>(y.residual) : c10::nullopt, t,
      quantizer, kept);
  if (y.residual.defined()) return {twins[0], twins[1], nullptr};
  const auto again = [x = y.value.detach(), numbers = kept.numbers, quantizer] {
    return norm_quantized_again(x, numbers, quantizer);
  };
  return {twins[0], twins[1], again};
}

namespace {

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
