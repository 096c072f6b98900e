// SPDX-License-Identifier: Apache-2.0
// Decoded images on the GPU become a batch there: resized, cropped, mirrored, with parts filled.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"

namespace octet::kernels {

/// Weights of the filters have so many fractional bits.
inline constexpr int kResampleBits = 22;

/// One axis of an image's filters: for each place of the batch's image the first of the pixels that it is made of, how
/// many they are, then `taps` weights, of which so many are used. No pixels: it lies outside the image.
struct ResampleAxis {
  int64_t offset = 0;  ///< where the axis begins in ResampleBatch::filters
  int32_t taps = 0;
  static constexpr int kHead = 2;  ///< numbers before the weights of a place
};

struct ResampledPicture {
  const uint8_t* pixels = nullptr;  ///< [., stride / channels, channels], on the device
  int64_t stride = 0;               ///< bytes from one row to the next
  ResampleAxis rows, columns;
  static constexpr int kFilled = 2;
  int16_t filled[kFilled][4] = {};  ///< top, left, end of rows and end of columns of parts that get the fill's colour
};

struct ResampleShape {
  int batch = 0;
  int height = 0, width = 0;  ///< of the batch
  int channels = 0;           ///< 1 or 3
  bool reversed = false;      ///< the batch has the channels in reversed order
  uint8_t fill[3] = {};       ///< by channel of the image
  uint8_t outside = 0;        ///< value of pixels that lie outside the image
};

/// The tensors of resampling. All pointers are on the device.
struct ResampleBatch {
  const ResampledPicture* pictures = nullptr;  ///< [batch]
  const int32_t* filters = nullptr;
  uint8_t* images = nullptr;  ///< written: [batch, height, width, channels]
};

/// Makes a training batch: each pixel is a sum of weights along its row, rounded to 8 bits, summed likewise along its
/// column. By definition it is training_pixels() (src/data/transform.h) of images planned by src/data/image_plan.h.
void cuda_resample(const ResampleShape& shape, const ResampleBatch& batch, CudaStream stream);

}  // namespace octet::kernels
