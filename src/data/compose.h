// SPDX-License-Identifier: Apache-2.0
// Which images a training image that is placed (Fit other than crop) is made of, and where each lies: one, a mosaic of
// four, or with mixup two of these. All random numbers of such an image are drawn here, whoever makes its pixels.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "src/base/random.h"
#include "src/data/dataset.h"
#include "src/data/place.h"
#include "src/data/transform.h"

namespace octet {

/// An image in a training image.
struct Tile {
  size_t index = 0;  ///< into the data set
  PictureSize size;
  Placed placed;
};

struct Composition {
  std::vector<Tile> tiles;  ///< later ones cover earlier ones
  size_t mixed = 0;         ///< from here on they are those of the image that it is mixed with; tiles.size(): it is not
};

/// Where the images of a composition are from.
struct ImageSource {
  const std::vector<size_t>& others;  ///< of which those that a mosaic or mixup adds are drawn
  /// Returns the size of an image; called once for each tile, in their order.
  std::function<PictureSize(size_t index)> size_of;
};

/// Draws the composition of a training image that begins with image `index`. join: mosaics and mixed images are made,
/// if the transform says so; without, it has one tile, drawn as training_pixels() draws it.
Composition compose(size_t index, const Transform& transform, bool join, const ImageSource& source, Random& random);

/// Writes what `images`, those of the tiles, show to out, [height, width, channels] of the transform.
void write_composition(std::span<const Image> images, const Composition& composition, const Transform& transform,
                       uint8_t* out);

}  // namespace octet
