#include "src/data/exif.h"

#include <cstring>
#include <utility>

namespace octet {
namespace {

constexpr char kPrefix[6] = {'E', 'x', 'i', 'f', 0, 0};  // of JPEG's APP1; some writers of WebP and PNG keep it
constexpr uint32_t kTagOrientation = 0x0112, kTypeShort = 3;
constexpr size_t kHeaderBytes = 8, kEntryBytes = 12;

/// Numbers of a TIFF structure (TIFF 6.0, section 2), in its byte order. Each read is within the data, else 0.
class TiffReader {
 public:
  TiffReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  /// "II" or "MM", then the number 42.
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
  if (size >= sizeof(kPrefix) && std::memcmp(data, kPrefix, sizeof(kPrefix)) == 0) {
    data += sizeof(kPrefix);
    size -= sizeof(kPrefix);
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
  const PictureSize size = upright(PictureSize{image.height, image.width}, orientation);
  // Where the upright picture's first pixel lies, and how far its next row and its next column are, in pixels.
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

PictureSize upright(const PictureSize& size, int orientation) {
  return orientation >= 5 && orientation <= 8 ? PictureSize{size.width, size.height} : size;
}

}  // namespace octet
