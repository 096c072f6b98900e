// SPDX-License-Identifier: Apache-2.0
// The image formats behind decode_image(). Each function throws Error(data) "name: what". libjpeg and libpng report
// errors by longjmp; their decoders keep that inside functions that own nothing, and throw afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/dataset.h"

namespace octet {

/// The bytes of an image file.
struct EncodedImage {
  EncodedImage(std::string_view bytes, std::string&& name) = delete;  // it would not live long enough
  EncodedImage(std::string_view bytes, const std::string& name_)
      : data(reinterpret_cast<const uint8_t*>(bytes.data())), size(bytes.size()), name(name_) {}
  const uint8_t* data = nullptr;
  size_t size = 0;
  const std::string& name;  ///< for messages
};

/// Return RGB (channels 3) or grey (channels 1) pixels, not turned.
Image decode_jpeg(const EncodedImage& encoded, int channels);
Image decode_png(const EncodedImage& encoded, int channels);
Image decode_bmp(const EncodedImage& encoded, int channels);
Image decode_webp(const EncodedImage& encoded, int channels);

/// Return what the file says about its pixels, without decoding them. A JPEG that a GPU decodes is baseline with 8-bit
/// samples, of one scan in YCbCr, its colours whole or halved along one or both axes, and ends with its end marker.
ImageHeader jpeg_header(const EncodedImage& encoded);
ImageHeader png_header(const EncodedImage& encoded);
ImageHeader bmp_header(const EncodedImage& encoded);
ImageHeader webp_header(const EncodedImage& encoded);

/// The most pixels that a byte of a JPEG can stand for: a block of 64 samples takes at least a bit.
inline constexpr uint64_t kMostPixelsPerByte = 2048;
inline constexpr uint64_t kAnyPixelsPerByte = UINT64_MAX;

/// Throws Error(data) if an image of that size is too large, or cannot come from so few bytes. Called before memory is
/// allocated.
void check_dimensions(const EncodedImage& encoded, uint64_t width, uint64_t height,
                      uint64_t most_pixels_per_byte = kMostPixelsPerByte);

/// Returns an image of three channels, as it is or its grey three times.
Image in_colour(Image image);

/// Converts RGB to grey (ITU-R BT.601, in 16-bit fixed point, rounded).
Image to_grey(const Image& colour);

/// What begins EXIF data in a JPEG's APP1 marker; some writers of WebP and PNG keep it.
inline constexpr std::string_view kExifPrefix("Exif\0\0", 6);

/// Returns the orientation, 1 .. 8, in EXIF data (CIPA DC-008-2019: a TIFF header, a directory, its entry of tag
/// 0x0112), with or without kExifPrefix before it. Returns 1, upright as stored, where the data has no such entry,
/// another number, or is damaged.
int exif_orientation(const uint8_t* data, size_t size);

/// Returns `image`, stored in orientation 1 .. 8, mirrored and turned upright. 5 to 8 swap height and width.
Image upright(Image image, int orientation);

/// Returns the size of an image of size `size` once it is upright.
ImageSize upright(const ImageSize& size, int orientation);

/// Returns the size that an image with this header has when it is read: upright, or as it is stored.
ImageSize size_as_read(const ImageHeader& header, Orientation orientation);

}  // namespace octet
