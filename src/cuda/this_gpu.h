// The calling thread's current GPU as kernels are asked about it.
#pragma once

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/cuda/device.h"

namespace octet {

inline kernels::CudaGpu this_gpu() { return {gpu_status().capability, gpu_status().multiprocessors}; }

}  // namespace octet
