// Time between two places of a stream, added up on the GPU: also in a CUDA graph, which is recorded once and replayed.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"

namespace octet::kernels {

struct StreamClock {  ///< in the GPU's memory, zeroed
  int64_t began = 0, nanoseconds = 0;
};

void cuda_clock_start(StreamClock* clock, CudaStream stream);
void cuda_clock_stop(StreamClock* clock, CudaStream stream);

}  // namespace octet::kernels
