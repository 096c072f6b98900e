// BatchNorm in training over a batch that several processes share: its statistics are those of the whole batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace octet {

/// [shares, ...]: every share's tensor, in the order of the shares, with the same bits everywhere. All shares of a
/// batch are equally large. On a GPU queued in the current stream; nothing waits for it.
using GatherShares = std::function<at::Tensor(const at::Tensor& mine)>;

/// Float [C] each; the running ones are moved.
struct BatchNormTensors {
  at::Tensor weight, bias, running_mean, running_var;
};

/// at::batch_norm in training, for this process's share x [N, C, H, W] of the batch. The gradient of x is the whole
/// batch's; those of weight and bias are this share's part, to be added up with the others'.
at::Tensor shared_batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, double momentum, double epsilon,
                             const GatherShares& gather);

}  // namespace octet
