// SPDX-License-Identifier: Apache-2.0
// Where tensors live, in which stream their operators run, and how octet's kernels see them. LibTorch's operators
// follow the device of their tensors; what goes between them needs this.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "kernels/core/cuda.h"
#include "src/base/error.h"
#include "src/train/model/model.h"
#include "src/train/model/numerics.h"

namespace octet {

/// Returns the weights on `device`, with their types, memory formats and requires_grad. Those already there are shared,
/// not copied; the others are new leaves without gradients.
Weights to_device(const Weights& weights, at::Device device);

/// Returns the device of a network's weights, which is the same for all.
at::Device device_of(const Weights& weights);

/// Returns x contiguous in the host's memory: x itself, or a copy through page-locked memory, complete on return. Of an
/// x without gaps it takes no memory of the GPU.
at::Tensor to_host(const at::Tensor& x);

/// Returns what a build without CUDA throws when it meets a tensor or device on a GPU.
Error no_cuda(at::Device device);

/// Returns the stream that LibTorch's operators use on `device` in this thread. Throws no_cuda() in a build without
/// CUDA.
CudaStream current_stream(at::Device device);

/// Returns the kernels' name of a type. Throws Error(promise) for others than float32, float16 and bfloat16.
kernels::ValueType value_type(at::ScalarType type);
inline kernels::ValueType value_type(const at::Tensor& x) { return value_type(x.scalar_type()); }

at::ScalarType scalar_type(kernels::ValueType type);

/// Returns x itself when its memory has no gaps (channels-last included), else a dense copy: kernels see flat memory.
at::Tensor dense(const at::Tensor& x);

}  // namespace octet
