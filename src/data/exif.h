// The orientation that a camera writes beside a picture's pixels, in EXIF data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/data/dataset.h"

namespace octet {

/// The orientation, 1 .. 8, of EXIF data (CIPA DC-008-2019: a TIFF header, a directory, its entry of tag 0x0112), with
/// or without "Exif\0\0" before it. 1, pixels as they lie, where the data has none, another number, or is damaged.
int exif_orientation(const uint8_t* data, size_t size);

/// The picture as a person should see it: `image` mirrored and turned from orientation 1 .. 8. 5 to 8 swap height and
/// width.
Image upright(Image image, int orientation);

/// The size of a picture of `size` once it is upright.
PictureSize upright(const PictureSize& size, int orientation);

}  // namespace octet
