// Pictures to choose bits and layers on.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainers/run/run.h"

namespace octet {

/// So many validation images, from all over the list, in batches of evaluate.batch_size: normalized float [N, C, H, W]
/// on the run's device.
std::vector<at::Tensor> validation_pictures(const Run& run, int images);

}  // namespace octet
