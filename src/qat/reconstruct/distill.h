// The last repair: the whole quantized network learns what the float one says of pictures, from no labels. Codes,
// scales of weights and biases move; the edges' qparams stay. After rounding, which looks at a layer or block alone
// (reconstruct.h), it takes away what the layers' errors do together.
#pragma once

#include <functional>

#include "src/qat/quantized_model.h"

namespace octet {

struct DistillPlan {
  int steps = 1000;    ///< of Adam
  double rate = 1e-3;  ///< of biases and, in steps of the grid, of codes; a tenth of it is scales', as a share
  double temperature = 4;
  bool tf32 = false;  ///< on a GPU: tensor_float32.h
};

struct Distilled {
  double first = 0, last = 0;      ///< mean loss of the first and of the last tenth of the steps
  int64_t weights = 0, moved = 0;  ///< moved: to another code
};

/// Minimizes distillation_loss() over pictures that `next` gives, float [N, C, H, W], always as many. `floats`: the
/// weights before they were rounded, whose network teaches. The last layer stays: it would learn the classes that the
/// pictures happen to show. Rates rise over the first twentieth of the steps, then fall
/// to 0 along half a cosine. Changes the model's weights in place, those of convolutions and linears stay on a grid
/// whose scales the model finds again.
Distilled distill(QuantizedModel& model, const Weights& floats, const std::function<at::Tensor()>& next,
                  const DistillPlan& plan);

/// Throws Error(usage) for a network with several outputs, or with one layer.
void require_teachable(const Graph& fused);

}  // namespace octet
