// Where LibTorch's operators run on a GPU, for kernels of our own that go between them.
#pragma once

#include <c10/core/Device.h>

#include "kernels/cuda_stream.h"
#include "src/common/error.h"

namespace octet {

/// What a build without CUDA throws when it meets a tensor or device that it cannot serve.
Error no_cuda(at::Device device);

/// The stream that LibTorch's operators use for `device` in this thread. Throws no_cuda() in a build without CUDA.
CudaStream current_stream(at::Device device);

}  // namespace octet
