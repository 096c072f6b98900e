// CUDA's error codes as octet::Error.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "src/common/error.h"

namespace octet {

/// Throws Error(promise): "copying the images to the GPU: an illegal memory access was encountered
/// (cudaErrorIllegalAddress)". `what` says what octet was doing. Out of memory is thrown by DeviceBuffer, with sizes.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // told here: the next launch must not be blamed for it
  throw promise_error(std::string(what) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

}  // namespace octet
