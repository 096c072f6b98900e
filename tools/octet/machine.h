// What this machine is: for doctor, for reports and for --device.
#pragma once

#include <string>

#include "src/engine/engine.h"

namespace octet::cli {

std::string cpu_model();      ///< "AMD EPYC ..., 2 cores"
std::string machine_model();  ///< "AMD EPYC ..., 2 cores; NVIDIA H200": the GPU if it is usable and the build has CUDA
Support cuda_gpu();           ///< the NVIDIA GPU and its driver; the reason why it is not usable

}  // namespace octet::cli
