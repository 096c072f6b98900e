// SPDX-License-Identifier: Apache-2.0
// BatchNorm with its gradients in double: what kernels/training/norm_quantize.h is compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace octet::kernels {

/// A BatchNorm in double. Tensors are [rows, channels].
struct PlainNorm {
  long rows = 0;
  int channels = 0;
  double epsilon = 0;
  const double* weight = nullptr;  ///< [channels]
  const double* bias = nullptr;    ///< [channels]
};

/// Calls take(index of the value, its channel) for all values, row by row.
template <class Take>
void for_values(const PlainNorm& norm, const Take& take) {
  size_t i = 0;
  for (long row = 0; row < norm.rows; ++row)
    for (int c = 0; c < norm.channels; ++c, ++i) take(i, c);
}

inline double factor_of(const PlainNorm& norm, const double* moments, int channel) {
  return 1 / std::sqrt(moments[norm.channels + channel] + norm.epsilon);
}

/// Writes mean and variance (divided by rows) of each channel to moments [2, channels].
inline void plain_norm_moments(const PlainNorm& norm, const double* x, double* moments) {
  double* const mean = moments;
  double* const variance = moments + norm.channels;
  std::fill(moments, moments + 2L * norm.channels, 0.0);
  const auto rows = static_cast<double>(norm.rows);
  for_values(norm, [&](size_t i, int c) { mean[c] += x[i] / rows; });
  for_values(norm, [&](size_t i, int c) { variance[c] += (x[i] - mean[c]) * (x[i] - mean[c]) / rows; });
}

/// Writes normal, which is not rounded, plus the residual where it is not null, to sum.
inline void plain_norm_sum(const PlainNorm& norm, const double* x, const double* moments, const double* residual,
                           double* sum) {
  for_values(norm, [&](size_t i, int c) {
    const double normal = (x[i] - moments[c]) * factor_of(norm, moments, c) * norm.weight[c] + norm.bias[c];
    sum[i] = residual != nullptr ? normal + residual[i] : normal;
  });
}

/// The gradients of a PlainNorm, written.
struct PlainNormGradients {
  double* dx = nullptr;       ///< [rows, channels]
  double* dweight = nullptr;  ///< [channels]
  double* dbias = nullptr;    ///< [channels]
};

/// Writes the gradients for that of the sum, `dsum` [rows, channels], which is also the residual's.
inline void plain_norm_gradients(const PlainNorm& norm, const double* x, const double* moments, const double* dsum,
                                 const PlainNormGradients& gradients) {
  const double* const mean = moments;
  double* const of_bias = gradients.dbias;
  double* const of_weight = gradients.dweight;
  std::fill(of_bias, of_bias + norm.channels, 0.0);
  std::fill(of_weight, of_weight + norm.channels, 0.0);
  for_values(norm, [&](size_t i, int c) {
    of_bias[c] += dsum[i];
    of_weight[c] += dsum[i] * (x[i] - mean[c]) * factor_of(norm, moments, c);
  });
  const auto rows = static_cast<double>(norm.rows);
  for_values(norm, [&](size_t i, int c) {
    const double factor = factor_of(norm, moments, c), normal = (x[i] - mean[c]) * factor;
    gradients.dx[i] = norm.weight[c] * factor * (dsum[i] - of_bias[c] / rows - normal * of_weight[c] / rows);
  });
}

}  // namespace octet::kernels
