// quantize_image() on the GPU.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/image_int8/image_int8.h"

namespace octet::kernels {

/// All pointers on the device. image: pixels [pixels, channels]; tables: codes [channels, 256]; codes: [pixels,
/// out_stride], bytes past `channels` become 0.
void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream);

}  // namespace octet::kernels
