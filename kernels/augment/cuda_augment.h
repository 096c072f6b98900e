// A training batch made on the GPU from pictures that stay there as bytes. What each function writes is defined by
// training_pixels() (src/data/augment.h) followed by look_up_image(): the same bytes, so the same floats.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"

namespace octet::kernels {

struct AugmentShape {
  int batch = 0;
  int picture_height = 0, picture_width = 0;
  int height = 0, width = 0;  ///< of the batch
  int channels = 0;           ///< at most kMostChannels
  int cutout = 0;             ///< side of the square; 0: none
  static constexpr int kMostChannels = 4;
  uint8_t fill[kMostChannels] = {};  ///< of the square, one a channel
};

/// One picture of the batch: drawn on the host (draw_augmentation()), copied to the GPU as it is.
struct AugmentedPicture {
  int64_t index = 0;  ///< among the pictures on the GPU
  int32_t label = 0;
  int16_t top = 0, left = 0;     ///< of the crop; zeros outside the picture
  int16_t cut_y = 0, cut_x = 0;  ///< upper left corner of the cutout
  int16_t flip = 0;              ///< 1: left and right change places, after the crop
};

/// All pointers on the device.
struct AugmentBatch {
  const uint8_t* pictures = nullptr;         ///< [N, picture_height, picture_width, channels]
  const AugmentedPicture* chosen = nullptr;  ///< [batch]
  const float* tables = nullptr;             ///< [channels, 256]: a pixel's value
  float* images = nullptr;                   ///< out: [batch, height, width, channels]
  int64_t* labels = nullptr;                 ///< out: [batch]
};

void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream);

}  // namespace octet::kernels
