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

/// Error(promise): "phase float, epoch 2, step 17: training diverged: the loss is nan; first at node 'conv2'. Lower
/// train.learning_rate, now 0.1: COMMAND". `what`: "the loss is nan". `position.step`: of the step where it happened,
/// from 0.
Error diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where);

/// first_non_finite() (src/model/model.h) of the float forward, in QAT of the fused graph; "the loss itself" or "a fake
/// quantizer" when every output is finite.
std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode);

/// The node where the float forward of some training pictures overflows, as first_non_finite() says it; "": nowhere.
/// Fake quantizers clip: the loss of QAT stays finite when its weights compute nothing any more.
std::string non_finite_output(const Phase& phase, const RunData& data);

/// Throws diverged() naming the first weight that is not finite, or the node where an observer on the GPU met such a
/// value, so that a bad state never replaces a good one. `done`: after its last step.
void require_finite(const Phase& phase, const Position& done);

}  // namespace octet
