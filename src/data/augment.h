// What happens to one picture on its way into a batch.
#pragma once

#include <cstdint>

#include "src/common/random.h"
#include "src/data/loader.h"
#include "src/data/resize.h"

namespace octet {

/// Throws Error(usage) for a Transform that makes no sense (sizes, channels, fill).
void check_transform(const Transform& transform);

/// Throws Error(data) if a picture of that size cannot go through the transform: too small for the crop, or too long.
void check_size(const PictureSize& picture, const Transform& transform, bool training);

/// Evaluation: resize, centre crop. out: [height, width, channels]. Throws Error(data) if the picture has other
/// channels or is smaller than the crop.
void evaluation_pixels(const Image& image, const Transform& transform, uint8_t* out);

/// What chance decides about one training picture.
struct Augmentation {
  Rectangle part;            ///< random_resized_crop: what is resized to height x width; else the crop, which begins
                             ///< outside the picture where it reaches into the padding
  bool flip = false;         ///< after the crop
  int cut_y = 0, cut_x = 0;  ///< upper left corner of the cutout, which may reach over the borders
};

/// Draws it for a picture of `picture` (height and width; with `resize` and no random_resized_crop the resized
/// picture's). The order of the calls of `random` is fixed: batches are the same on every device. Throws Error(data) if
/// the picture is smaller than the crop.
Augmentation draw_augmentation(const PictureSize& picture, const Transform& transform, Random& random);

/// Training: random resized crop, or resize, pad and random crop; then flip; then cutout. Errors as above.
void training_pixels(const Image& image, const Transform& transform, Random& random, uint8_t* out);

/// A part of the picture with area crop_area_min .. 1 and aspect 3/4 .. 4/3 (Szegedy et al. 2014).
Rectangle random_part(const PictureSize& picture, double area_min, Random& random);

}  // namespace octet
