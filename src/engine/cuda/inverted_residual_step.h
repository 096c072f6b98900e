// Inverted residuals in one kernel on the GPU.
#pragma once

#include <memory>
#include <vector>

#include "src/engine/cuda/step.h"
#include "src/engine/fusion.h"

namespace octet {

/// A step for each kernel that runs the group, of kind inverted_residual, for so many images; none where there is none.
std::vector<std::unique_ptr<CudaStep>> inverted_residual_steps(const Lowering& lowering, const NodeGroup& group,
                                                               int images);

}  // namespace octet
