// The picture formats behind decode_image. Each throws Error(data) "name: what". Errors of libjpeg and libpng arrive by
// longjmp; their decoders keep that inside functions that own nothing, and throw afterwards.
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

/// All give RGB or grey pixels as they are stored, as `channels` (3 or 1) asks.
Image decode_jpeg(const EncodedImage& encoded, int channels);
Image decode_png(const EncodedImage& encoded, int channels);
Image decode_bmp(const EncodedImage& encoded, int channels);
Image decode_webp(const EncodedImage& encoded, int channels);

/// What the file says before its pixels.
PictureHeader jpeg_header(const EncodedImage& encoded);
PictureHeader png_header(const EncodedImage& encoded);
PictureHeader bmp_header(const EncodedImage& encoded);
PictureHeader webp_header(const EncodedImage& encoded);

/// JPEG spends at least a bit on a block of 64 samples.
inline constexpr uint64_t kMostPixelsPerByte = 2048;
inline constexpr uint64_t kAnyPixelsPerByte = UINT64_MAX;

/// Throws Error(data) unless a picture of that size may come from so few bytes; called before memory is taken.
void check_dimensions(const EncodedImage& encoded, uint64_t width, uint64_t height,
                      uint64_t most_pixels_per_byte = kMostPixelsPerByte);

/// RGB to grey (ITU-R BT.601, 16-bit fixed point, rounded).
Image to_grey(const Image& colour);

}  // namespace octet
