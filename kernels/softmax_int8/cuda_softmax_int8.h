// Softmax on the GPU: the bytes of softmax_int8.h.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/softmax_int8/softmax_int8.h"

namespace octet::kernels {

/// x and y on the device, [shape.pixels, stride]: those of a whole batch. Exactly groups * channels of each pixel of y
/// are written. Throws Error(promise) when the launch fails.
void cuda_softmax_int8(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y,
                       CudaStream stream);

}  // namespace octet::kernels
