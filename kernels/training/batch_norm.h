// SPDX-License-Identifier: Apache-2.0
// BatchNorm in training, on the GPU, over a batch of which each GPU has a share. Between its passes the shares exchange
// sums by channel. Formulas: Ioffe and Szegedy 2015 (arXiv 1502.03167). Moments are joined as in Chan, Golub and
// LeVeque 1979, which avoids sums of large squares. All sums are added in a fixed order.
#pragma once

#include <cmath>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet::kernels {

/// A GPU's share of the input: channels-last, with at least one row. All pointers here and below are on the device.
struct BatchNormShare {
  const void* x = nullptr;  ///< [rows, channels]
  long rows = 0;
  int channels = 0;
  ValueType type = ValueType::float32;  ///< of x, y, dy and dx
};

/// Returns the first dimension of the scratch `parts` below, float [batch_norm_parts(rows, channels), 2, channels].
int batch_norm_parts(long rows, int channels);

/// Writes the mean of each part of this share, and its sum of squared differences from the mean, to parts.
void cuda_batch_norm_part_moments(const BatchNormShare& share, float* parts, CudaStream stream);

/// Writes the mean and the variance (divided by rows) of this share to moments [2, channels].
void cuda_batch_norm_moments(const BatchNormShare& share, float* parts, float* moments, CudaStream stream);

/// The tensors of the forward pass.
struct BatchNormForward {
  const float* moments = nullptr;  ///< [shares, 2, channels]: of all shares, which have equally many rows
  int shares = 1;
  const float* weight = nullptr;  ///< [channels], like all below
  const float* bias = nullptr;
  float* running_mean = nullptr;  ///< moved by `momentum` towards the mean of the complete batch
  float* running_var = nullptr;   ///< moved likewise towards its variance, divided by the batch's rows - 1
  float momentum = 0, epsilon = 0;
  float* kept = nullptr;  ///< written for the backward pass: [2, channels], mean and 1 / sqrt(variance + epsilon)
  void* y = nullptr;      ///< written: [rows, channels]
};

/// Writes y = (x - mean) / sqrt(variance + epsilon) * weight + bias for this share.
void cuda_batch_norm_normalize(const BatchNormShare& share, const BatchNormForward& forward, CudaStream stream);

/// The tensors of the backward pass.
struct BatchNormBackward {
  const void* dy = nullptr;       ///< [rows, channels]
  const float* kept = nullptr;    ///< from the forward pass
  const float* weight = nullptr;  ///< [channels]
};

/// Writes the sums of dy and of dy * (x - mean) over this share to sums [2, channels], and from them its part of the
/// gradients of weight and bias, [channels] each.
void cuda_batch_norm_gradient_sums(const BatchNormShare& share, const BatchNormBackward& backward, float* parts,
                                   float* sums, float* dweight, float* dbias, CudaStream stream);

/// Writes dx [rows, channels] of this share, given the sums [shares, 2, channels] of all shares. dx may be dy.
void cuda_batch_norm_gradient(const BatchNormShare& share, const BatchNormBackward& backward, const float* sums,
                              int shares, void* dx, CudaStream stream);

namespace batch_norm {

/// The gradient at one value of the input: dx = weight / sd * (dy - mean(dy) - (x - mean) / sd^2 * mean(dy * (x -
/// mean))), with means over the batch, by channel. For host and device.
class InputGradient {
 public:
  InputGradient() = default;
  /// factor is 1 / sd.
  OCTET_HOST_DEVICE InputGradient(float mean_dy, float mean_product, float mean, float factor, float weight)
      : of_dy_(weight * factor),
        of_x_(of_dy_ * mean_product * factor * factor),
        mean_(mean),
        offset_(-of_dy_ * mean_dy) {}

  /// Returns dx. The mean is subtracted from x first, since of_x * x and of_x * mean may be much larger than their
  /// difference.
  OCTET_HOST_DEVICE float operator()(float dy, float x) const {
    return fmaf(of_dy_, dy, fmaf(-of_x_, x - mean_, offset_));
  }

 private:
  float of_dy_, of_x_, mean_, offset_;
};

}  // namespace batch_norm
}  // namespace octet::kernels
