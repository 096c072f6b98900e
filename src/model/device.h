// Where tensors live, and in which precision: what model and QAT need besides LibTorch's operators, which follow the
// device of their tensors.
#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "src/model/model.h"
#include "src/torch/current_stream.h"

namespace octet {

/// The same weights on `device`: types, memory formats and requires_grad stay. Those already there are shared, not
/// copied; the others are new leaves without gradients.
Weights to_device(const Weights& weights, at::Device device);

/// Where a network's weights are; they are all in one place.
at::Device device_of(const Weights& weights);

/// `x` in the host's memory, dense: x itself, or a copy through page-locked memory, complete on return.
at::Tensor to_host(const at::Tensor& x);

/// While it lives, float32 means float32: autocast does not apply in this thread, and no convolution or matrix product
/// on the GPU rounds its inputs to TF32, whatever the recipe chose for training. (TF32's switches are the process's.)
class FullPrecision {
 public:
  FullPrecision();
  ~FullPrecision();
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

 private:
  at::Float32Precision convolution_, product_;  // to be restored
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}  // namespace octet
