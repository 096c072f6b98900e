// SPDX-License-Identifier: Apache-2.0
// The last repair after rounding: the float network is distilled into the quantized one, over images without labels.
// Rounding looks at one layer or block at a time; this reduces what the errors of all layers cause together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "src/train/qat/quantized_model.h"

namespace octet {

/// Returns T^2 KL(softmax(taught / T) || softmax(logits / T)), mean over the batch, of logits [N, classes] (Hinton et
/// al., "Distilling the Knowledge in a Neural Network", arXiv 1503.02531), or over pixels of [N, classes, pixels].
at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature);

struct DistillPlan {
  int steps = 1000;    ///< of Adam
  double rate = 1e-3;  ///< for biases and, in steps of the grid, codes; a tenth of it for the logarithms of scales
  double temperature = 4;
  bool tf32 = false;  ///< on a GPU steps use TF32 (src/train/model/device.h)
};

struct Distilled {
  double first = 0, last = 0;      ///< mean loss of the first and of the last tenth of the steps
  int64_t weights = 0, moved = 0;  ///< moved: weights with another code than before
};

/// Minimizes distillation_loss() over the images that `next` returns, float [N, C, H, W], the same N each time.
/// `floats` are the weights before they were rounded, those of the teacher. Codes, scales of weights and biases are
/// learned; the edges' qparams stay, and so does the last layer, which would learn the classes of these images. Rates
/// rise over the first twentieth of the steps and then fall to 0 along half a cosine. Changes the model's weights in
/// place; they stay on grids whose scales the model finds again.
Distilled distill(QuantizedModel& model, const Weights& floats, const std::function<at::Tensor()>& next,
                  const DistillPlan& plan);

/// Throws Error(usage) for a network with several outputs, or with one layer.
void require_teachable(const Graph& fused);

}  // namespace octet
