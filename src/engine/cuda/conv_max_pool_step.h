// A first layer with its max-pool as one kernel.
#pragma once

#include "src/engine/cuda/group_steps.h"

namespace octet {

/// Of a group of that kind; null where no kernel takes its layers.
GroupKernels conv_max_pool_kernels(const Lowering& lowering, const NodeGroup& group);

}  // namespace octet
