// SPDX-License-Identifier: Apache-2.0
// Channels of a network's values brought nearer to one range (src/quant/scale_classes.h), by what they are over some
// images.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/quant/scale_classes.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// How far the channels of a network's values reach, and the same network with channels that reach further.
class ValueScales {
 public:
  /// model: not quantized, or its values as if it were not. It must outlive this.
  explicit ValueScales(QuantizedModel& model);

  void see(const at::Tensor& x);  ///< a batch of images, normalized float [N, C, H, W]

  const ScaleClasses& classes() const { return classes_; }
  std::vector<float> factors(const ScaleClasses::Powers& powers) const;

  /// Returns the model's weights with these factors.
  Weights scaled(const std::vector<float>& factors) const;

 private:
  QuantizedModel& model_;
  ScaleClasses classes_;
  std::vector<at::Tensor> largest_;  ///< by node, [C]
};

}  // namespace octet
