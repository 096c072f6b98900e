// What the user is told when training diverges.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "src/common/error.h"
#include "trainers/train.h"
#include "trainers/training_state.h"

namespace octet {

/// Error(promise): "float: the loss is not finite in epoch 2, step 17; first at node 'conv2'. Last good state: ...".
/// `what`: "the loss is nan".
Error diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where);

/// Where NaN or infinity first appears on the way of x through the network: "node 'conv2', its weights". Runs the float
/// forward again (in QAT over the fused graph); with mode.batch_norm_training running statistics move.
std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode);

/// Throws diverged() naming the first weight that is not finite, so that a bad state never replaces a good one.
void require_finite_weights(const Phase& phase, const Position& position);

}  // namespace octet
