// SPDX-License-Identifier: Apache-2.0
// Which format a file has, its orientation, and WebP, whose library decodes a file in one call.
#include <fmt/format.h>
#include <webp/decode.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

constexpr uint64_t kMostPixels = uint64_t{64} << 20;

/// A format is told by the bytes at an offset of the file. Those without a decoder are there to be named in messages.
struct Format {
  size_t offset;
  std::string_view magic;
  const char* name;
  Image (*decode)(const EncodedImage& encoded, int channels);
  ImageHeader (*header)(const EncodedImage& encoded);
};

constexpr Format kFormats[] = {
    {0, "\xFF\xD8\xFF", "JPEG", decode_jpeg, jpeg_header},
    {0, "\x89PNG\r\n\x1A\n", "PNG", decode_png, png_header},
    {8, "WEBP", "WebP", decode_webp, webp_header},
    {0, "BM", "BMP", decode_bmp, bmp_header},
    {0, "GIF8", "GIF", nullptr, nullptr},
    {0, std::string_view("II*\0", 4), "TIFF", nullptr, nullptr},
    {0, std::string_view("MM\0*", 4), "TIFF", nullptr, nullptr},
    {4, "ftyp", "HEIF or AVIF", nullptr, nullptr},
};

const Format& format_of(const EncodedImage& encoded) {
  const std::string_view bytes(reinterpret_cast<const char*>(encoded.data), encoded.size);
  for (const Format& format : kFormats) {
    if (bytes.size() < format.offset || !bytes.substr(format.offset).starts_with(format.magic)) continue;
    if (format.decode != nullptr) return format;
    throw data_error(fmt::format("{}: a {} file; JPEG, PNG, BMP and WebP are read: save the image as one of them",
                                 encoded.name, format.name));
  }
  throw data_error(encoded.name + ": neither JPEG nor PNG, BMP or WebP");
}

}  // namespace

void check_dimensions(const EncodedImage& encoded, uint64_t width, uint64_t height, uint64_t most_pixels_per_byte) {
  if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels || width * height > kMostPixels) {
    throw data_error(fmt::format("{}: {}x{} pixels; allowed: 1 .. 64 Mpixel", encoded.name, width, height));
  }
  if (width * height / most_pixels_per_byte > encoded.size) {
    throw data_error(fmt::format("{}: announces {}x{} pixels in {} bytes: truncated or not an image", encoded.name,
                                 width, height, encoded.size));
  }
}

Image in_colour(Image image) {
  if (image.channels == 3) return image;
  Image colour{image.height, image.width, 3, std::vector<uint8_t>(image.pixels.size() * 3)};
  for (size_t i = 0; i < image.pixels.size(); ++i) std::fill_n(&colour.pixels[3 * i], 3, image.pixels[i]);
  return colour;
}

Image to_grey(const Image& colour) {
  Image grey{colour.height, colour.width, 1, std::vector<uint8_t>(colour.pixels.size() / 3)};
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    const uint8_t* rgb = &colour.pixels[3 * i];
    grey.pixels[i] = static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  return grey;
}

Image decode_image(std::string_view bytes, int channels, const std::string& name, Orientation orientation) {
  if (channels != 1 && channels != 3) throw usage_error(fmt::format("images of {} channels; allowed: 1, 3", channels));
  const EncodedImage encoded(bytes, name);
  const Format& format = format_of(encoded);
  Image image = format.decode(encoded, channels);
  if (orientation == Orientation::as_stored) return image;
  return upright(std::move(image), format.header(encoded).orientation);
}

ImageHeader decode_header(std::string_view bytes, const std::string& name) {
  const EncodedImage encoded(bytes, name);
  return format_of(encoded).header(encoded);
}

int bits_in_use(const ImageHeader& header, const Image& image) {
  if (header.bits != 16 || image.pixels.empty()) return 16;
  return 8 + std::bit_width(*std::max_element(image.pixels.begin(), image.pixels.end()));
}

namespace {

constexpr uint32_t kTagOrientation = 0x0112, kTypeShort = 3;
constexpr size_t kHeaderBytes = 8, kEntryBytes = 12;

/// Reads numbers of a TIFF structure (TIFF 6.0, section 2) in its byte order. A number outside the data is 0.
class TiffReader {
 public:
  TiffReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  /// Returns whether the data begins with "II" or "MM" (the byte order), then the number 42.
  bool read_header() {
    if (size_ < kHeaderBytes || data_[0] != data_[1] || (data_[0] != 'I' && data_[0] != 'M')) return false;
    big_endian_ = data_[0] == 'M';
    return number(2, 2) == 42;
  }

  uint32_t number(size_t offset, size_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | data_[offset + (big_endian_ ? i : bytes - 1 - i)];
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  bool big_endian_ = false;
};

}  // namespace

int exif_orientation(const uint8_t* data, size_t size) {
  if (std::string_view(reinterpret_cast<const char*>(data), size).starts_with(kExifPrefix)) {
    data += kExifPrefix.size();
    size -= kExifPrefix.size();
  }
  TiffReader tiff(data, size);
  if (!tiff.read_header()) return 1;
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);  // at most 65535, each looked at once
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kTagOrientation) continue;
    const uint32_t value = tiff.number(entry + 8, 2);
    const bool good = tiff.number(entry + 2, 2) == kTypeShort && tiff.number(entry + 4, 4) == 1;
    return good && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const ImageSize size = upright(ImageSize{image.height, image.width}, orientation);
  // Where the upright image's first pixel is stored, and how far its next row and next column are from there, in
  // pixels.
  const std::ptrdiff_t width = image.width, last_row = (image.height - 1) * width, last_column = width - 1;
  struct Walk {
    std::ptrdiff_t first, row, column;
  };
  const Walk walks[] = {
      {last_column, width, -1}, {last_row + last_column, -width, -1}, {last_row, -width, 1},   {0, 1, width},
      {last_row, 1, -width},    {last_row + last_column, -1, -width}, {last_column, -1, width}};  // orientations 2 to 8
  const Walk& walk = walks[orientation - 2];
  const auto channels = static_cast<size_t>(image.channels);
  Image turned{size.height, size.width, image.channels, std::vector<uint8_t>(image.pixels.size())};
  uint8_t* out = turned.pixels.data();
  for (std::ptrdiff_t y = 0; y < size.height; ++y) {
    for (std::ptrdiff_t x = 0; x < size.width; ++x, out += channels) {
      const auto from = static_cast<size_t>(walk.first + y * walk.row + x * walk.column);
      std::memcpy(out, &image.pixels[from * channels], channels);
    }
  }
  return turned;
}

ImageSize upright(const ImageSize& size, int orientation) {
  return orientation >= 5 && orientation <= 8 ? ImageSize{size.width, size.height} : size;
}

ImageSize size_as_read(const ImageHeader& header, Orientation orientation) {
  return upright(ImageSize{header.height, header.width}, orientation == Orientation::exif ? header.orientation : 1);
}

namespace {

[[noreturn]] void fail_webp(const EncodedImage& encoded, const char* what) {
  throw data_error(encoded.name + ": WebP: " + what);
}

/// Returns the orientation in the chunk "EXIF" of the RIFF container (RFC 9649, section 2). A chunk is a name, a size
/// and so many bytes, padded to an even number.
int webp_orientation(const EncodedImage& encoded) {
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

ImageHeader webp_header(const EncodedImage& encoded) {
  WebPBitstreamFeatures features = {};
  if (WebPGetFeatures(encoded.data, encoded.size, &features) != VP8_STATUS_OK)
    fail_webp(encoded, "damaged, or ends early");
  if (features.has_animation != 0) fail_webp(encoded, "an animation; save the image that is meant by itself");
  // A lossless file may hold any number of equal pixels in a few bytes: only the image's size is bounded.
  check_dimensions(encoded, static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height),
                   kAnyPixelsPerByte);
  return {.height = features.height, .width = features.width, .orientation = webp_orientation(encoded)};
}

Image decode_webp(const EncodedImage& encoded, int channels) {
  const ImageHeader header = webp_header(encoded);
  Image image{header.height, header.width, 3, {}};
  const size_t stride = static_cast<size_t>(image.width) * 3;
  image.pixels.resize(stride * static_cast<size_t>(image.height));
  if (WebPDecodeRGBInto(encoded.data, encoded.size, image.pixels.data(), image.pixels.size(),
                        static_cast<int>(stride)) == nullptr)
    fail_webp(encoded, "damaged, or ends early");
  return channels == 1 ? to_grey(image) : image;
}

}  // namespace octet
