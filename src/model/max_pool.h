// Max pooling in training.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/graph/graph.h"

namespace octet {

/// x: [N, C, H, W]. On a GPU, channels-last, by our kernels: LibTorch's keep 8 bytes for each value they choose, and x.
at::Tensor max_pool(const at::Tensor& x, const Window& window);

}  // namespace octet
