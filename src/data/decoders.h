// The two picture formats behind decode_image. Errors of both libraries arrive by longjmp; each decoder keeps that
// inside functions that own nothing, and throws Error(data) "name: what" afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/data/dataset.h"

namespace octet {

struct EncodedImage {
  const uint8_t* data = nullptr;
  size_t size = 0;
  const std::string& name;  ///< for messages
};

/// Both give RGB or grey pixels, as `channels` (3 or 1) asks.
Image decode_jpeg(const EncodedImage& encoded, int channels);
Image decode_png(const EncodedImage& encoded, int channels);

/// Throws Error(data) unless a picture of that size may come from so few bytes; called before memory is taken.
void check_dimensions(const EncodedImage& encoded, uint64_t width, uint64_t height);

/// RGB to grey (ITU-R BT.601, 16-bit fixed point, rounded).
Image to_grey(const Image& colour);

}  // namespace octet
