// SPDX-License-Identifier: Apache-2.0
// Guards over how LibTorch computes floats: mixed precision, full precision, TF32, and the same bits in every run. Each
// restores on destruction what was set before. The switches for GPU and cuDNN are the process's, not the thread's.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "src/base/names.h"

namespace octet {

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
