// SPDX-License-Identifier: Apache-2.0
// What a training image needs so that a GPU can decode its files and make its pixels (data.decode: gpu): the bytes of
// the files, and of which of their pixels each pixel of the network's input is made, for crops and for images that are
// placed (Fit other than crop). The random numbers are those that the CPU draws: training_pixels(), compose().
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/training/batches.h"
#include "src/data/dataset.h"
#include "src/data/place.h"
#include "src/data/transform.h"

namespace octet {

/// An image that a GPU decodes, or that the CPU decoded for it.
struct ImageFile {
  std::string file;     ///< a JPEG that a GPU decodes; empty: `image` has the pixels, decoded by the CPU
  Image image;          ///< its size as it is read and, without `file`, its pixels
  std::string why_cpu;  ///< without `file`: "progressive", "no JPEG" and the like
};

/// Reads the file's bytes if a GPU decodes them, else its pixels. Throws Error(data) as Dataset::read() does, also for
/// a JPEG whose header is damaged.
ImageFile read_image_file(const Dataset& dataset, size_t index);

struct CropPlan : ImageFile {
  ResizeFilter rows, columns;         ///< of the input; a count of 0: outside the image (Transform::outside)
  std::array<Rectangle, 2> filled{};  ///< parts of the input that become Transform::fill: cutout and erasing
};

/// Returns why training_pixels() cannot be planned for this transform, naming the recipe's keys, or "".
std::string why_not_planned(const Transform& transform);

/// Reads the image and draws what training_pixels() draws, with Fit::crop and why_not_planned() "". Throws Error(data)
/// as training_pixels() and read_image_file() do.
CropPlan plan_crop(const Dataset& dataset, size_t index, const Transform& transform, Random& random);

/// Decodes a file by the CPU after all, as Dataset::read() does, and notes why.
void decode_by_cpu(ImageFile& file, int channels, const std::string& name, const std::string& why);

/// One image of a composition, as far as it is seen.
struct TilePlan : ImageFile {
  size_t index = 0;            ///< into the data set
  kernels::PlacedTile tile;    ///< all but its pixels, and where its filters begin
  ResizeFilter rows, columns;  ///< of the places in tile.kept, mirrored if the image is
};

struct PlacedPlan {
  std::vector<TilePlan> tiles;  ///< later ones cover earlier ones; what is not seen has none
  size_t mixed = 0;             ///< from here on they are those of the image that it is mixed with
  bool two = false;             ///< whether it is mixed, with an image of which nothing may be seen
};

/// Draws a composition (see compose()) and plans its pixels. Reads of the images their files, if a GPU decodes them,
/// and else their pixels. Throws Error(data) as read_image_file() does, with the name of the image.
PlacedPlan plan_placed(const Dataset& dataset, const std::vector<size_t>& others, size_t index,
                       const Transform& transform, bool join, Random& random, Composition& composition);

}  // namespace octet
