// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/device.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#if OCTET_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace octet {

Weights to_device(const Weights& weights, at::Device device) {
  const c10::NoGradGuard no_grad;
  Weights moved;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor there = tensor.to(device);  // dense tensors keep their strides
    if (!there.is_same(tensor)) there.requires_grad_(tensor.requires_grad());
    moved.emplace(name, there);
  }
  return moved;
}

at::Device device_of(const Weights& weights) { return weights.begin()->second.device(); }

Error no_cuda(at::Device device) {
  return usage_error("no kernels for " + device.str() +
                     ": octet was built without CUDA; install nvcc and run tools/setup.sh again");
}

#if OCTET_CUDA
CudaStream current_stream(at::Device device) { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); }

at::Tensor to_host(const at::Tensor& x) {
  if (x.is_cpu()) return x.contiguous();
  const at::Tensor from = x.detach();
  // With the strides that it has there: to be put in order needs memory, of which the GPU may have none left.
  at::Tensor host = at::empty_like(from, from.options().device(at::kCPU).pinned_memory(true));
  // A copy that LibTorch's allocator has to wait for ends the process in ~Tensor when the GPU has failed meanwhile.
  host.copy_(from, /*non_blocking=*/false);
  return host.contiguous();
}
#else
CudaStream current_stream(at::Device device) { throw no_cuda(device); }

at::Tensor to_host(const at::Tensor& x) { return x.contiguous(); }
#endif

kernels::ValueType value_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::ValueType::float32;
    case at::kHalf:
      return kernels::ValueType::float16;
    case at::kBFloat16:
      return kernels::ValueType::bfloat16;
    default:
      throw promise_error(std::string("kernels take float32, float16 and bfloat16, not ") + c10::toString(type));
  }
}

at::ScalarType scalar_type(kernels::ValueType type) {
  if (type == kernels::ValueType::float32) return at::kFloat;
  return type == kernels::ValueType::float16 ? at::kHalf : at::kBFloat16;
}

at::Tensor dense(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? x : x.contiguous(x.suggest_memory_format());
}

at::Tensor with_strides(const at::Tensor& x, at::IntArrayRef strides) {
  if (!x.defined() || x.strides() == strides) return x;
  at::Tensor copy = at::empty_strided(x.sizes(), strides, x.options());
  copy.copy_(x);
  return copy;
}

namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

void set_products(Float32Precision convolution, Float32Precision product) {
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, convolution);
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, product);
}

int precision_of(Float32Op op) {
  return static_cast<int>(at::globalContext().float32Precision(Float32Backend::CUDA, op));
}

}  // namespace

Autocast::Autocast(at::DeviceType device, Precision precision)
    : device_(device), active_(precision != Precision::fp32) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  old_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

bool autocasts(at::DeviceType device) { return at::autocast::is_autocast_enabled(device); }

at::ScalarType autocast_type() {
  return autocasts(at::kCUDA) ? at::autocast::get_autocast_dtype(at::kCUDA) : at::kFloat;
}

ProductPrecision::ProductPrecision()
    : convolution_(precision_of(Float32Op::CONV)), product_(precision_of(Float32Op::MATMUL)) {}

ProductPrecision::~ProductPrecision() {
  set_products(static_cast<Float32Precision>(convolution_), static_cast<Float32Precision>(product_));
}

FullPrecision::FullPrecision() : no_autocast_(c10::autocast_dispatch_keyset) {
  set_products(Float32Precision::IEEE, Float32Precision::IEEE);
}

TensorFloat32::TensorFloat32(bool round) {
  if (round) set_products(Float32Precision::TF32, Float32Precision::TF32);
}

SameConvolutions::SameConvolutions()
    : benchmark_(at::globalContext().benchmarkCuDNN()), deterministic_(at::globalContext().deterministicCuDNN()) {
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
}

SameConvolutions::~SameConvolutions() {
  at::globalContext().setBenchmarkCuDNN(benchmark_);
  at::globalContext().setDeterministicCuDNN(deterministic_);
}

}  // namespace octet
