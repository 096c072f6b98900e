// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/numerics.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace octet {
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
