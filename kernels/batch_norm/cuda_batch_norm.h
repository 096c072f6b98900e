// BatchNorm in training over a batch of which each GPU has a share. In passes: shares exchange sums by channel between
// them. Formulas: Ioffe and Szegedy 2015 (arXiv 1502.03167); moments are joined as in Chan, Golub and LeVeque 1979, so
// that there is no sum of large squares. All sums are added in the same order each time.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/value_type.h"

namespace octet::kernels {

/// Pointers here and below on the device. Channels-last memory: rows of channels. At least one row.
struct BatchNormShare {
  const void* x = nullptr;  ///< [rows, channels]
  long rows = 0;
  int channels = 0;
  ValueType type = ValueType::float32;  ///< of x, y, dy and dx
};

/// What the sums below need beside them, while they run: float [batch_norm_parts(rows, channels), 2, channels].
int batch_norm_parts(long rows, int channels);

/// moments [2, channels]: mean and variance (divided by rows) of this share.
void cuda_batch_norm_moments(const BatchNormShare& share, float* parts, float* moments, CudaStream stream);

struct BatchNormForward {
  const float* moments = nullptr;  ///< [shares, 2, channels]: of all shares, which have as many rows
  int shares = 1;
  const float* weight = nullptr;  ///< [channels], as all below
  const float* bias = nullptr;
  float* running_mean = nullptr;  ///< moved by `momentum` towards the whole batch's
  float* running_var = nullptr;   ///< likewise, towards the variance divided by the batch's rows - 1
  float momentum = 0, epsilon = 0;
  float* kept = nullptr;  ///< [2, channels] for the backward pass: mean and 1 / sqrt(variance + epsilon)
  void* y = nullptr;      ///< [rows, channels]
};

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias.
void cuda_batch_norm_normalize(const BatchNormShare& share, const BatchNormForward& forward, CudaStream stream);

struct BatchNormBackward {
  const void* dy = nullptr;       ///< [rows, channels]
  const float* kept = nullptr;    ///< from the forward pass
  const float* weight = nullptr;  ///< [channels]
};

/// sums [2, channels]: of dy, and of dy * (x - mean), of this share; from them its part of the gradients of weight and
/// bias, [channels] each.
void cuda_batch_norm_gradient_sums(const BatchNormShare& share, const BatchNormBackward& backward, float* parts,
                                   float* sums, float* dweight, float* dbias, CudaStream stream);

/// dx [rows, channels], from the sums [shares, 2, channels] of all shares; may be dy.
void cuda_batch_norm_gradient(const BatchNormShare& share, const BatchNormBackward& backward, const float* sums,
                              int shares, void* dx, CudaStream stream);

}  // namespace octet::kernels
