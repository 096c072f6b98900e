// What this machine is, for reports.
#pragma once

#include <string>

namespace octet {

std::string cpu_model();      ///< "AMD EPYC ..., 2 cores", "..., 64 cores, of which octet may use 2"
std::string machine_model();  ///< "AMD EPYC ..., 2 cores; NVIDIA H200": the GPU if it is usable and the build has CUDA

}  // namespace octet
