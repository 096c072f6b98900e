// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include <cstring>

#include "src/base/error.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

[[noreturn]] void fail(const EncodedImage& encoded, const char* what) {
  throw data_error(encoded.name + ": WebP: " + what);
}

/// Returns the orientation in the chunk "EXIF" of the RIFF container (RFC 9649, section 2). A chunk is a name, a size
/// and so many bytes, padded to an even number.
int orientation_of(const EncodedImage& encoded) {
  constexpr size_t kRiffHeader = 12, kChunkHeader = 8;
  for (size_t at = kRiffHeader; at < encoded.size && encoded.size - at >= kChunkHeader;) {
    const uint8_t* chunk = encoded.data + at;
    const size_t size = chunk[4] | size_t{chunk[5]} << 8 | size_t{chunk[6]} << 16 | size_t{chunk[7]} << 24;
    const size_t left = encoded.size - at - kChunkHeader;
    if (size > left) return 1;
    if (std::memcmp(chunk, "EXIF", 4) == 0) return exif_orientation(chunk + kChunkHeader, size);
    at += kChunkHeader + size + size % 2;
  }
  return 1;
}

}  // namespace

PictureHeader webp_header(const EncodedImage& encoded) {
  WebPBitstreamFeatures features = {};
  if (WebPGetFeatures(encoded.data, encoded.size, &features) != VP8_STATUS_OK) fail(encoded, "damaged, or ends early");
  if (features.has_animation != 0) fail(encoded, "an animation; save the picture that is meant by itself");
  // A lossless file may hold any number of equal pixels in a few bytes: only the image's size is bounded.
  check_dimensions(encoded, static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height),
                   kAnyPixelsPerByte);
  return {.height = features.height, .width = features.width, .orientation = orientation_of(encoded)};
}

Image decode_webp(const EncodedImage& encoded, int channels) {
  const PictureHeader header = webp_header(encoded);
  Image image{header.height, header.width, 3, {}};
  const size_t stride = static_cast<size_t>(image.width) * 3;
  image.pixels.resize(stride * static_cast<size_t>(image.height));
  if (WebPDecodeRGBInto(encoded.data, encoded.size, image.pixels.data(), image.pixels.size(),
                        static_cast<int>(stride)) == nullptr)
    fail(encoded, "damaged, or ends early");
  return channels == 1 ? to_grey(image) : image;
}

}  // namespace octet
