// Inverted residuals in one kernel on the GPU.
#pragma once

#include "src/engine/cuda/group_steps.h"

namespace octet {

/// Of a group of that kind; null where no kernel takes its layers.
GroupKernels inverted_residual_kernels(const Lowering& lowering, const NodeGroup& group);

}  // namespace octet
