// What is learned after training may learn with rounded products, though what is deployed has none.
#pragma once

#include <ATen/Context.h>

namespace octet {

/// While it lives, and if `round`, float32 convolutions and products on a GPU round their inputs to TF32, 10 bits of
/// mantissa: a step of MobileNetV2's convolutions takes less than half the time. Within FullPrecision, which rounds
/// none.
class TensorFloat32 {
 public:
  explicit TensorFloat32(bool round)
      : convolution_(at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV)),
        product_(at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)) {
    if (round) set(at::Float32Precision::TF32, at::Float32Precision::TF32);
  }
  ~TensorFloat32() { set(convolution_, product_); }
  TensorFloat32(const TensorFloat32&) = delete;
  TensorFloat32& operator=(const TensorFloat32&) = delete;

 private:
  static void set(at::Float32Precision convolution, at::Float32Precision product) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV, convolution);
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, product);
  }

  at::Float32Precision convolution_, product_;  // to be restored
};

}  // namespace octet
