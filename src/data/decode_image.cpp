#include <fmt/format.h>

#include <cstring>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

constexpr uint64_t kMostPixels = uint64_t{64} << 20;
/// JPEG spends at least a bit on a block of 64 samples, deflate at least a byte on 1032.
constexpr uint64_t kMostPixelsPerByte = 2048;

constexpr uint8_t kJpegMagic[] = {0xFF, 0xD8, 0xFF};
constexpr uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

template <size_t N>
bool starts_with(const uint8_t* data, size_t size, const uint8_t (&magic)[N]) {
  return size >= N && std::memcmp(data, magic, N) == 0;
}

}  // namespace

void check_dimensions(const EncodedImage& encoded, uint64_t width, uint64_t height) {
  if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels || width * height > kMostPixels) {
    throw data_error(fmt::format("{}: {}x{} pixels; allowed: 1 .. 64 Mpixel", encoded.name, width, height));
  }
  if (width * height > encoded.size * kMostPixelsPerByte) {
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

Image decode_image(const uint8_t* data, size_t size, int channels, const std::string& name) {
  if (channels != 1 && channels != 3)
    throw usage_error(fmt::format("pictures of {} channels; allowed: 1, 3", channels));
  const EncodedImage encoded{data, size, name};
  if (starts_with(data, size, kJpegMagic)) return decode_jpeg(encoded, channels);
  if (starts_with(data, size, kPngMagic)) return decode_png(encoded, channels);
  throw data_error(name + ": neither JPEG nor PNG");
}

Image read_image(const std::string& path, int channels) {
  const std::string data = read_file(path);
  return decode_image(reinterpret_cast<const uint8_t*>(data.data()), data.size(), channels, path);
}

}  // namespace octet
