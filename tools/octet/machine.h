// The machine's GPU, as doctor shows it.
#pragma once

#include "src/engine/engine.h"

namespace octet::cli {

Support cuda_gpu();  ///< the NVIDIA GPU and its driver; the reason why it is not usable

}  // namespace octet::cli
