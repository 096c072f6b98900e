// SPDX-License-Identifier: Apache-2.0
// Decoded images on the GPU become a batch of images that are placed in the network's input as a whole: scaled, moved,
// turned, recoloured, in mosaics of four and mixed. What each pixel is stands in kernels/operators/placed_pixel.h.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "kernels/operators/hsv.h"
#include "kernels/operators/resample.h"

namespace octet::kernels {

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
struct PlacedPicture {
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
  const PlacedPicture* pictures = nullptr;  ///< [batch]
  const PlacedTile* tiles = nullptr;
  const int32_t* filters = nullptr;  ///< as of ResampleBatch
  uint8_t* images = nullptr;         ///< written: [batch, height, width, channels]
};

/// Makes a training batch, with exactly the pixels that place() (src/data/place.h) makes of the same decoded images.
void cuda_place(const PlaceShape& shape, const PlaceBatch& batch, CudaStream stream);

}  // namespace octet::kernels
