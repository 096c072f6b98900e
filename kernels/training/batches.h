// SPDX-License-Identifier: Apache-2.0
// Training batches made on the GPU: of images that stay there (augment), and of decoded images that are resized,
// cropped and mirrored, with parts filled (resample), or placed in the network's input as a whole (place): scaled,
// moved, turned, recoloured, in mosaics of four and mixed. What each placed pixel is stands in
// kernels/training/placed_pixel.h.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "kernels/training/hsv.h"

namespace octet::kernels {

struct AugmentShape {
  int batch = 0;
  int source_height = 0, source_width = 0;  ///< of the images that are cropped
  int height = 0, width = 0;                ///< of the batch
  int channels = 0;                         ///< at most kMostChannels
  int cutout = 0;                           ///< side of the cutout square; 0: none
  static constexpr int kMostChannels = 4;
  uint8_t fill[kMostChannels] = {};  ///< pixel value of the square, by channel
};

/// How one image of the batch is made. The host draws it (draw_augmentation()) and copies it to the GPU.
struct AugmentedImage {
  int64_t index = 0;  ///< of the image among those on the GPU
  int32_t label = 0;
  int16_t top = 0, left = 0;     ///< of the crop; pixels outside the image are 0
  int16_t cut_y = 0, cut_x = 0;  ///< upper left corner of the cutout square
  int16_t flip = 0;              ///< 1: the crop is mirrored horizontally
};

/// The tensors of augmentation. All pointers are on the device.
struct AugmentBatch {
  const uint8_t* sources = nullptr;        ///< [N, source_height, source_width, channels]
  const AugmentedImage* chosen = nullptr;  ///< [batch]
  const float* tables = nullptr;           ///< [channels, 256]: the real value of each pixel value
  float* images = nullptr;                 ///< written: [batch, height, width, channels]
  int64_t* labels = nullptr;               ///< written: [batch]
};

/// Makes a training batch from images that stay on the GPU as bytes. By definition it is training_pixels()
/// (src/data/transform.h) followed by look_up_image().
void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream);

/// Weights of the filters have so many fractional bits.
inline constexpr int kResampleBits = 22;

/// One axis of an image's filters: for each place of the batch's image the first of the pixels that it is made of, how
/// many they are, then `taps` weights, of which so many are used. No pixels: it lies outside the image.
struct ResampleAxis {
  int64_t offset = 0;  ///< where the axis begins in ResampleBatch::filters
  int32_t taps = 0;
  static constexpr int kHead = 2;  ///< numbers before the weights of a place
};

struct ResampledImage {
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
  const ResampledImage* plans = nullptr;  ///< [batch]
  const int32_t* filters = nullptr;
  uint8_t* images = nullptr;  ///< written: [batch, height, width, channels]
};

/// Makes a training batch: each pixel is a sum of weights along its row, rounded to 8 bits, summed likewise along its
/// column. By definition it is training_pixels() (src/data/transform.h) of images planned by src/data/image_plan.h.
void cuda_resample(const ResampleShape& shape, const ResampleBatch& batch, CudaStream stream);

/// A linear map of a plane that leaves its centre where it is.
struct PlaneTurn {
  double xx = 1, xy = 0, yx = 0, yy = 1;  ///< a point (x, y) from the centre comes to (xx x + xy y, yx x + yy y)
  double centre_x = 0, centre_y = 0;

  OCTET_HOST_DEVICE double x_of(double x, double y) const {
    return centre_x + xx * (x - centre_x) + xy * (y - centre_y);
  }
  OCTET_HOST_DEVICE double y_of(double x, double y) const {
    return centre_y + yx * (x - centre_x) + yy * (y - centre_y);
  }
};

/// Rows top .. bottom - 1 and columns left .. right - 1 of the batch's image.
struct Bounds {
  int32_t top = 0, left = 0, bottom = 0, right = 0;

  /// Whether a point, or the number of a row and a column, lies within.
  template <class T>
  OCTET_HOST_DEVICE bool hold(T y, T x) const {
    return y >= top && y < bottom && x >= left && x < right;
  }
};

/// One decoded image, or a part of a mosaic, in an image of the batch. It is resized and recoloured first, and then
/// turned, by bilinear interpolation of the resized pixels.
struct PlacedTile {
  const uint8_t* pixels = nullptr;  ///< [., stride / channels, channels], on the device
  int64_t stride = 0;               ///< bytes from one row to the next
  int32_t top = 0, left = 0;        ///< of the whole image when it is resized, in the batch's image
  Bounds kept;     ///< where resized pixels lie that are needed, before they are turned: `seen` and one around it
  Bounds seen;     ///< where the image is seen before it is turned
  Bounds reached;  ///< outside of this the batch's image shows nothing of it
  ResampleAxis rows, columns;  ///< filters of the places in `kept`
  ColourChange colours;
  PlaneTurn back;      ///< from a point of the batch's image to where it was before the turn
  int32_t turned = 0;  ///< 0: `back` changes nothing, and `reached` is `seen`
};

/// The tiles of an image of the batch. Later ones cover earlier ones.
struct PlacedImage {
  int32_t first = 0, mixed = 0, end = 0;  ///< from `mixed` on they are those of a second image
  int32_t two = 0;                        ///< 1: the mean of both is taken; 0: there is no second image
};

struct PlaceShape {
  int batch = 0;
  int height = 0, width = 0;  ///< of the batch
  int channels = 0;           ///< 1 or 3
  bool reversed = false;      ///< the batch has the channels in reversed order
  uint8_t ground = 0;         ///< value of pixels that no tile covers
};

/// The tensors of placing. All pointers are on the device.
struct PlaceBatch {
  const PlacedImage* plans = nullptr;  ///< [batch]
  const PlacedTile* tiles = nullptr;
  const int32_t* filters = nullptr;  ///< as of ResampleBatch
  uint8_t* images = nullptr;         ///< written: [batch, height, width, channels]
};

/// Makes a training batch, with exactly the pixels that place() (src/data/place.h) makes of the same decoded images.
void cuda_place(const PlaceShape& shape, const PlaceBatch& batch, CudaStream stream);

}  // namespace octet::kernels
