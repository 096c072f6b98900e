#include "src/torch/current_stream.h"

#if OCTET_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace octet {

Error no_cuda(at::Device device) {
  return usage_error("no kernels for " + device.str() +
                     ": octet was built without CUDA; install nvcc and run tools/setup.sh again");
}

#if OCTET_CUDA
CudaStream current_stream(at::Device device) { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); }
#else
CudaStream current_stream(at::Device device) { throw no_cuda(device); }
#endif

}  // namespace octet
