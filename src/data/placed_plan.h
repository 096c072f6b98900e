// SPDX-License-Identifier: Apache-2.0
// What a training image that is placed (Fit other than crop) needs so that a GPU can decode its files and make its
// pixels. The random numbers are drawn by compose(), for the CPU and for the GPU.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/operators/place.h"
#include "src/data/compose.h"
#include "src/data/picture_plan.h"

namespace octet {

/// One image of a composition, as far as it is seen.
struct TilePlan : PictureFile {
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
/// and else their pixels. Throws Error(data) as read_picture_file() does, with the name of the image.
PlacedPlan plan_placed(const Dataset& dataset, const std::vector<size_t>& others, size_t index,
                       const Transform& transform, bool join, Random& random, Composition& composition);

}  // namespace octet
