// What this machine is: for doctor, for reports and for --device.
#pragma once

#include <string>

#include "src/engine/engine.h"

namespace octet::cli {

std::string cpu_model();  ///< "AMD EPYC ..., 2 cores"
Support cuda_gpu();       ///< is there a usable NVIDIA GPU and driver; the reason if not

}  // namespace octet::cli
