// SPDX-License-Identifier: Apache-2.0
// Pixels of images become codes, or real values, by look-up in a table of 256 entries per channel. A look-up is exact,
// so there is no separate definition. Also makes training batches on the GPU.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

struct ImageShape {
  int channels = 0;
  int out_stride = 0;  ///< bytes from one pixel of the codes to the next, >= channels
};

/// Quantizes the pixels of `range`. image: [pixels, channels]; tables: codes [channels, 256], of input_table() in
/// src/net/int8_graph.h; codes: [pixels, out_stride], bytes past `channels` become 0.
void quantize_image(const ImageShape& shape, Range range, const uint8_t* tables, const uint8_t* image, uint8_t* codes);

/// quantize_image() for all `pixels` on the GPU; all pointers are on the device.
void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream);

/// The real value of each pixel value of each channel: normalized, or a code minus its zero point.
struct PixelTables {
  int channels = 0;
  const float* values = nullptr;  ///< [channels, 256]
};

/// Writes the real value of each pixel. image and out: [pixels, channels].
void look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out);

/// look_up_image() on the GPU; all pointers are on the device, also the tables'.
void cuda_look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out, CudaStream stream);

struct AugmentShape {
  int batch = 0;
  int picture_height = 0, picture_width = 0;  ///< of the images that are cropped
  int height = 0, width = 0;                  ///< of the batch
  int channels = 0;                           ///< at most kMostChannels
  int cutout = 0;                             ///< side of the cutout square; 0: none
  static constexpr int kMostChannels = 4;
  uint8_t fill[kMostChannels] = {};  ///< pixel value of the square, by channel
};

/// How one image of the batch is made. The host draws it (draw_augmentation()) and copies it to the GPU.
struct AugmentedPicture {
  int64_t index = 0;  ///< of the image among those on the GPU
  int32_t label = 0;
  int16_t top = 0, left = 0;     ///< of the crop; pixels outside the image are 0
  int16_t cut_y = 0, cut_x = 0;  ///< upper left corner of the cutout square
  int16_t flip = 0;              ///< 1: the crop is mirrored horizontally
};

/// The tensors of augmentation. All pointers are on the device.
struct AugmentBatch {
  const uint8_t* pictures = nullptr;         ///< [N, picture_height, picture_width, channels]
  const AugmentedPicture* chosen = nullptr;  ///< [batch]
  const float* tables = nullptr;             ///< [channels, 256]: the real value of each pixel value
  float* images = nullptr;                   ///< written: [batch, height, width, channels]
  int64_t* labels = nullptr;                 ///< written: [batch]
};

/// Makes a training batch from images that stay on the GPU as bytes. By definition it is training_pixels()
/// (src/data/transform.h) followed by look_up_image().
void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream);

}  // namespace octet::kernels
