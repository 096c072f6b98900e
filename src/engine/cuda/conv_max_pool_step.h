// A first layer with its max-pool as one kernel.
#pragma once

#include <memory>
#include <vector>

#include "src/engine/cuda/step.h"
#include "src/engine/fusion.h"

namespace octet {

/// One step a kernel, for a group of kind conv_max_pool; none for layers that no kernel takes.
std::vector<std::unique_ptr<CudaStep>> make_conv_max_pool_steps(const Lowering& lowering, const NodeGroup& group);

}  // namespace octet
