// The machine's GPUs, as doctor shows them.
#pragma once

#include <vector>

#include "src/engine/engine.h"

namespace octet::cli {

/// The NVIDIA GPUs that this process sees, with their driver, in CUDA's order; one entry with the reason where none is
/// usable.
std::vector<Support> cuda_gpus();

}  // namespace octet::cli
