#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/data/decoders.h"
#include "src/data/exif.h"

namespace octet {
namespace {

constexpr uint64_t kMostPixels = uint64_t{64} << 20;

/// The bytes of a file at an offset, by which its format is known; of those without a decoder the name is said.
struct Format {
  size_t offset;
  std::string_view magic;
  const char* name;
  Image (*decode)(const EncodedImage& encoded, int channels);
  PictureHeader (*header)(const EncodedImage& encoded);
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
    throw data_error(fmt::format("{}: a {} file; JPEG, PNG, BMP and WebP are read: save the picture as one of them",
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
    throw data_error(fmt::format("{}: announces {}x{} pixels in {} bytes: truncated or not a picture", encoded.name,
                                 width, height, encoded.size));
  }
}

Image to_grey(const Image& colour) {
  Image grey{colour.height, colour.width, 1, std::vector<uint8_t>(colour.pixels.size() / 3)};
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    const uint8_t* rgb = &colour.pixels[3 * i];
    grey.pixels[i] = static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  return grey;
}

Image decode_image(const uint8_t* data, size_t size, int channels, const std::string& name, Orientation orientation) {
  if (channels != 1 && channels != 3)
    throw usage_error(fmt::format("pictures of {} channels; allowed: 1, 3", channels));
  const EncodedImage encoded{data, size, name};
  const Format& format = format_of(encoded);
  Image image = format.decode(encoded, channels);
  if (orientation == Orientation::as_stored) return image;
  return upright(std::move(image), format.header(encoded).orientation);
}

PictureHeader decode_header(const uint8_t* data, size_t size, const std::string& name) {
  const EncodedImage encoded{data, size, name};
  return format_of(encoded).header(encoded);
}

int bits_in_use(const PictureHeader& header, const Image& image) {
  if (header.bits != 16 || image.pixels.empty()) return 16;
  return 8 + std::bit_width(*std::max_element(image.pixels.begin(), image.pixels.end()));
}

Image read_image(const std::string& path, int channels, Orientation orientation) {
  const std::string data = read_file(path);
  return decode_image(reinterpret_cast<const uint8_t*>(data.data()), data.size(), channels, path, orientation);
}

}  // namespace octet
