// What happens to one picture on its way into a batch.
#pragma once

#include <cstdint>

#include "src/data/loader.h"
#include "src/data/random.h"
#include "src/data/resize.h"

namespace octet {

/// Throws Error(usage) for a Transform that makes no sense (sizes, channels, fill).
void check_transform(const Transform& transform);

/// Evaluation: resize, centre crop. out: [height, width, channels]. Throws Error(data) if the picture has other
/// channels or is smaller than the crop.
void evaluation_pixels(const Image& image, const Transform& transform, uint8_t* out);

/// Training: random resized crop, or resize, pad and random crop; then flip; then cutout. Errors as above.
void training_pixels(const Image& image, const Transform& transform, Random& random, uint8_t* out);

/// A part of the picture with area crop_area_min .. 1 and aspect 3/4 .. 4/3 (Szegedy et al. 2014).
Rectangle random_part(const Image& image, double area_min, Random& random);

}  // namespace octet
