// What fake quantization and ranges that learn share on the CPU: whole tensors through kernels/fake_quantize, by
// several threads. Not for other files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/quantize.h"

namespace octet {

inline constexpr int64_t kGrain = 32768;  ///< values a thread takes at least

/// bfloat16 as the kernels see it.
inline const uint16_t* bits(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }
inline uint16_t* mutable_bits(at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

/// Throws Error(promise) for other types than float32 and bfloat16.
void check_type(const at::Tensor& x);

/// y = dequantize(quantize(x)) of a dense x. mask: like x in uint8, written; or undefined.
at::Tensor forward_tensor(const at::Tensor& x, const QParams& q, at::Tensor& mask);

/// A gradient in the layout of the tensor that it is of.
at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& gradient);

/// Gradient through a mask of its layout.
at::Tensor masked(const at::Tensor& dy, const at::Tensor& mask);

}  // namespace octet
