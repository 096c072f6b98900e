// look_up_image() on the GPU.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/image_float/image_float.h"

namespace octet::kernels {

/// All pointers on the device, the tables' too.
void cuda_look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out, CudaStream stream);

}  // namespace octet::kernels
