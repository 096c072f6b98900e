// Bilinear resize with antialiasing of 8-bit pictures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/data/dataset.h"

namespace octet {

/// A rectangle of a picture: interleaved [height, width, channels], rows `stride` bytes apart.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int height = 0, width = 0, channels = 0;
  size_t stride = 0;
};

struct Rectangle {
  int top = 0, left = 0, height = 0, width = 0;
};

/// The part of `image` inside `rectangle`, which must lie inside the picture.
ImageView view(const Image& image, const Rectangle& rectangle);
ImageView view(const Image& image);

/// Triangle filter, stretched by the scale when shrinking; columns first, then rows, rounded to 8 bits after each. The
/// definition that Pillow and torchvision use, so that a network sees the pixels it was trained on.
/// Nothing outside the view is read.
Image resize(const ImageView& input, int height, int width);

}  // namespace octet
