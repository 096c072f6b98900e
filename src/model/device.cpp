#include "src/model/device.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

namespace octet {
namespace {

using at::Float32Backend;
using at::Float32Op;

}  // namespace

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

#if OCTET_CUDA
at::Tensor to_host(const at::Tensor& x) {
  if (x.is_cpu()) return x.contiguous();
  const at::Tensor dense = x.detach().contiguous();
  at::Tensor host = at::empty_like(dense, dense.options().device(at::kCPU).pinned_memory(true));
  // A copy that LibTorch's allocator has to wait for ends the process in ~Tensor when the GPU has failed meanwhile.
  host.copy_(dense, /*non_blocking=*/false);
  return host;
}
#else
at::Tensor to_host(const at::Tensor& x) { return x.contiguous(); }
#endif

FullPrecision::FullPrecision()
    : convolution_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::CONV)),
      product_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL)),
      no_autocast_(c10::autocast_dispatch_keyset) {
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, at::Float32Precision::IEEE);
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, at::Float32Precision::IEEE);
}

FullPrecision::~FullPrecision() {
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, convolution_);
  at::globalContext().setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, product_);
}

}  // namespace octet
