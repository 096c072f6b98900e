// The convolution that ends a ResNet's bottleneck and the one that begins the next as one kernel.
#pragma once

#include "src/engine/cuda/group_steps.h"

namespace octet {

/// Of a group of that kind; null where no kernel takes its layers.
GroupKernels expand_reduce_kernels(const Lowering& lowering, const NodeGroup& group);

}  // namespace octet
