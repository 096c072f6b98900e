// lookup_int8_reference() on the GPU.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/elementwise_int8/lookup_int8.h"

namespace octet::kernels {

/// x, y: `count` bytes on the device. Fast when pointers and count are multiples of 16. Throws Error(promise) when the
/// launch fails.
void cuda_lookup_int8(const LookupTable& table, const uint8_t* x, long count, uint8_t* y, CudaStream stream);

}  // namespace octet::kernels
