// What the user is told when training diverges.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "src/common/error.h"
#include "trainers/loop/train.h"
#include "trainers/loop/training_state.h"

namespace octet {

/// "The last good state is kept in FILE: continue with --resume", or that there is none.
std::string kept_state(const Phase& phase);

/// Error(promise): "float: the loss is not finite in epoch 2, step 17; first at node 'conv2'. Last good state: ...".
/// `what`: "the loss is nan".
Error diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where);

/// first_non_finite() (src/model/model.h) of the float forward, in QAT of the fused graph; "the loss itself" or "a fake
/// quantizer" when every output is finite.
std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode);

/// Throws diverged() naming the first weight that is not finite, or the node where an observer on the GPU met such a
/// value, so that a bad state never replaces a good one.
void require_finite(const Phase& phase, const Position& position);

}  // namespace octet
