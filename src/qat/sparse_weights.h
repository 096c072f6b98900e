// 2:4 sparse weights in QAT (SR-STE; Zhou et al., arXiv 2102.04010): what the network uses of dense weights that train.
#pragma once

#include "src/model/model.h"
#include "src/quant/prepare.h"

namespace octet {

/// `weights`, where those of sparse layers keep two of each four, by magnitude now. The gradient goes straight through,
/// to those that do not stay, too. Launches only; float32, contiguous or channels-last.
Weights sparse_weights(const Prepared& prepared, const Weights& weights);

/// Adds rate * w to the gradient of every weight w that does not stay, so that it comes to 0 unless the loss wants it.
/// Where there is a gradient, in the weight's layout. Launches only.
void decay_pruned(const Prepared& prepared, const Weights& weights, double rate);

}  // namespace octet
