// SPDX-License-Identifier: Apache-2.0
// CUDA's error codes as octet::Error. It includes CUDA's headers, and is for the sources of this folder.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "src/base/error.h"

namespace octet {

/// Throws Error(promise) unless `status` is success: "copying the images to the GPU: an illegal memory access was
/// encountered (cudaErrorIllegalAddress)". `what` says what octet was doing. DeviceBuffer reports missing memory
/// itself.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next launch would report otherwise
  throw promise_error(std::string(what) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

}  // namespace octet
