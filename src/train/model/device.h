// SPDX-License-Identifier: Apache-2.0
// Where tensors live, in which stream their operators run, and how octet's kernels see them. LibTorch's operators
// follow the device of their tensors; what goes between them needs this. Below: guards over how LibTorch computes
// floats (mixed precision, full precision, TF32, the same bits in every run). Each restores on destruction what was set
// before. The switches for GPU and cuDNN are the process's, not the thread's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "kernels/core/cuda.h"
#include "src/base/error.h"
#include "src/base/names.h"
#include "src/train/model/model.h"

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

/// Returns x with these strides: x itself where it has them or is undefined, else a copy. Gradients come in any layout,
/// as a sum's expanded one.
at::Tensor with_strides(const at::Tensor& x, at::IntArrayRef strides);

/// Mixed precision: convolutions and linears of this thread run in `precision`; fp32 changes nothing. LibTorch has the
/// functions in C++, but not the guard (pytorch#44710). The cache of cast weights is dropped at the end.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool active_, was_enabled_ = false;
  at::ScalarType old_dtype_ = at::kFloat;
};

/// Returns whether autocast applies in this thread to operators on such a device.
bool autocasts(at::DeviceType device);

/// Returns the type that convolutions and linears on a GPU run in: autocast's, or float32.
at::ScalarType autocast_type();

/// Keeps how float32 convolutions and matrix products on a GPU round their inputs (at::Float32Precision).
class ProductPrecision {
 public:
  ProductPrecision();
  ~ProductPrecision();
  ProductPrecision(const ProductPrecision&) = delete;
  ProductPrecision& operator=(const ProductPrecision&) = delete;

 private:
  int convolution_, product_;
};

/// float32 means float32: autocast does not apply in this thread, and no convolution or matrix product on a GPU rounds
/// its inputs to TF32, whatever the recipe allows in training.
class FullPrecision {
 public:
  FullPrecision();

 private:
  ProductPrecision before_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

/// If `round`, float32 convolutions and products on a GPU round their inputs to TF32, 10 bits of mantissa: a step over
/// MobileNetV2's convolutions takes less than half the time. For learning inside of FullPrecision, which rounds none.
class TensorFloat32 {
 public:
  explicit TensorFloat32(bool round);

 private:
  ProductPrecision before_;
};

/// cuDNN computes the same bits in every run, and does not choose algorithms by timing them.
class SameConvolutions {
 public:
  SameConvolutions();
  ~SameConvolutions();
  SameConvolutions(const SameConvolutions&) = delete;
  SameConvolutions& operator=(const SameConvolutions&) = delete;

 private:
  bool benchmark_, deterministic_;
};

}  // namespace octet
