// What a network loses against another that teaches it (Hinton et al., "Distilling the Knowledge in a Neural Network",
// arXiv 1503.02531).
#pragma once

#include <ATen/core/Tensor.h>

namespace octet {

/// T^2 KL(softmax(taught / T) || softmax(logits / T)), mean over the batch; logits: [N, classes].
at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature);

}  // namespace octet
