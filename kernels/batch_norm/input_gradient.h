// BatchNorm's gradient at its input, value by value (Ioffe and Szegedy 2015, arXiv 1502.03167):
// dx = weight / sd * (dy - mean(dy) - (x - mean) / sd^2 * mean(dy * (x - mean))), means over the batch, by channel.
#pragma once

#include <cmath>

#include "kernels/quantize.h"

namespace octet::kernels::batch_norm {

class InputGradient {
 public:
  InputGradient() = default;
  /// factor: 1 / sd.
  OCTET_HOST_DEVICE InputGradient(float mean_dy, float mean_product, float mean, float factor, float weight)
      : of_dy_(weight * factor),
        of_x_(of_dy_ * mean_product * factor * factor),
        mean_(mean),
        offset_(-of_dy_ * mean_dy) {}

  /// x is centred first: of_x * x and of_x * mean may both be far larger than what they differ by.
  OCTET_HOST_DEVICE float operator()(float dy, float x) const {
    return fmaf(of_dy_, dy, fmaf(-of_x_, x - mean_, offset_));
  }

 private:
  float of_dy_, of_x_, mean_, offset_;
};

}  // namespace octet::kernels::batch_norm
