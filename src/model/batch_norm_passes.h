// The two passes of BatchNorm over a batch of which this process has a share: by LibTorch's operators, or by our
// kernels on a GPU.
#pragma once

#include <cstdint>

#include "src/common/error.h"
#include "src/model/shared_batch_norm.h"

namespace octet {

struct BatchNormNumbers {
  double momentum = 0, epsilon = 0;
};

struct NormalizedBatch {
  at::Tensor y;
  at::Tensor kept;  ///< float [2, C], for the backward pass: mean, and 1 / sqrt(variance + epsilon)
};

struct BatchNormGradients {
  at::Tensor x;             ///< the whole batch's
  at::Tensor weight, bias;  ///< this share's part
};

/// Error(promise): a channel has no variance.
Error too_few_values();

/// Values of a channel in `shares` shares as large as x. Throws too_few_values() where that is one or none.
double count_in(const at::Tensor& x, int64_t shares);

#if OCTET_CUDA
NormalizedBatch cuda_batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormNumbers& numbers,
                                const GatherShares& gather);
BatchNormGradients cuda_batch_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                            const at::Tensor& kept, const GatherShares& gather);
#endif

}  // namespace octet
