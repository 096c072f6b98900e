// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "src/base/error.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

// Windows bitmaps: BITMAPFILEHEADER, BITMAPINFOHEADER or one of its extensions, masks or a palette, rows of whole 4
// bytes (https://learn.microsoft.com/en-us/windows/win32/gdi/bitmap-storage).
constexpr size_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
constexpr uint32_t kPlain = 0, kBitFields = 3, kAlphaBitFields = 6;

/// The bits of one colour in a pixel of 16 or 32 bits.
struct Mask {
  uint32_t bits = 0;
  /// Returns the colour of a pixel, 0 .. 255, where all bits set give 255.
  uint8_t of(uint32_t pixel) const {
    if (bits == 0) return 0;
    const int shift = std::countr_zero(bits);
    const uint64_t value = (pixel & bits) >> shift, largest = bits >> shift;
    return static_cast<uint8_t>((value * 255 + largest / 2) / largest);
  }
};

class BmpDecoder {
 public:
  explicit BmpDecoder(const EncodedImage& encoded) : encoded_(encoded) { read_header(); }

  ImageHeader header() const { return {.height = height_, .width = width_}; }

  Image decode() const {
    Image image{height_, width_, 3, std::vector<uint8_t>(static_cast<size_t>(height_) * width_ * 3)};
    for (int y = 0; y < height_; ++y) {
      const int stored = top_down_ ? y : height_ - 1 - y;
      const uint8_t* row = encoded_.data + pixels_ + static_cast<size_t>(stored) * stride_;
      uint8_t* out = image.pixels.data() + static_cast<size_t>(y) * width_ * 3;
      for (int x = 0; x < width_; ++x, out += 3) read_pixel(row, x, out);
    }
    return image;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(fmt::format("{}: BMP: {}", encoded_.name, what));
  }

  uint32_t number(size_t offset, size_t bytes) const {
    if (offset > encoded_.size || bytes > encoded_.size - offset) fail("ends early");
    uint32_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | encoded_.data[offset + i];
    return value;
  }

  void read_header() {
    pixels_ = number(10, 4);
    const size_t size = number(kFileHeader, 4);
    const bool core = size == kCoreHeader;
    if (!core && size < kInfoHeader) fail(fmt::format("a header of {} bytes", size));
    const auto width = core ? static_cast<int64_t>(number(18, 2)) : static_cast<int32_t>(number(18, 4));
    const auto height = core ? static_cast<int64_t>(number(20, 2)) : static_cast<int32_t>(number(22, 4));
    bits_ = static_cast<int>(number(core ? 24 : 28, 2));
    const uint32_t kind = core ? kPlain : number(30, 4);
    const bool fields = kind == kBitFields || kind == kAlphaBitFields;
    if (bits_ != 1 && bits_ != 4 && bits_ != 8 && bits_ != 16 && bits_ != 24 && bits_ != 32)
      fail(fmt::format("{} bits a pixel; read are 1, 4, 8, 16, 24 and 32", bits_));
    if (kind != kPlain && !(fields && (bits_ == 16 || bits_ == 32)))
      fail(fmt::format("its pixels are compressed (method {}); save it as PNG", kind));
    top_down_ = height < 0;
    const int64_t rows = top_down_ ? -height : height;
    if (width <= 0 || rows == 0) fail(fmt::format("{}x{} pixels", width, height));
    check_dimensions(encoded_, static_cast<uint64_t>(width), static_cast<uint64_t>(rows));
    width_ = static_cast<int>(width), height_ = static_cast<int>(rows);
    stride_ = (static_cast<size_t>(width_) * static_cast<size_t>(bits_) + 31) / 32 * 4;
    if (pixels_ > encoded_.size || stride_ * static_cast<size_t>(height_) > encoded_.size - pixels_) fail("ends early");
    if (bits_ <= 8) read_palette(kFileHeader + size, core ? 3 : 4, core ? 0 : number(46, 4));
    if (bits_ == 16) masks_ = {Mask{0x7c00}, Mask{0x03e0}, Mask{0x001f}};
    if (bits_ == 32) masks_ = {Mask{0xff0000}, Mask{0x00ff00}, Mask{0x0000ff}};
    for (size_t c = 0; fields && c < 3; ++c) masks_[c].bits = number(kFileHeader + kInfoHeader + 4 * c, 4);
  }

  /// Reads the palette, whose colours are stored as blue, green, red. Colours that the file leaves out are black.
  void read_palette(size_t offset, size_t bytes, uint32_t named) {
    const size_t most = size_t{1} << bits_, count = named == 0 ? most : named;
    if (count > most) fail(fmt::format("{} colours for pixels of {} bits", count, bits_));
    for (size_t i = 0; i < count; ++i)
      for (size_t c = 0; c < 3; ++c) palette_[i][c] = static_cast<uint8_t>(number(offset + i * bytes + 2 - c, 1));
  }

  void read_pixel(const uint8_t* row, int x, uint8_t* out) const {
    if (bits_ <= 8) {
      const int position = x * bits_;
      const int index = row[position / 8] >> (8 - bits_ - position % 8) & ((1 << bits_) - 1);
      std::copy_n(palette_[static_cast<size_t>(index)].begin(), 3, out);
      return;
    }
    const size_t bytes = static_cast<size_t>(bits_) / 8;
    const uint8_t* from = row + static_cast<size_t>(x) * bytes;
    if (bits_ == 24) {
      for (int c = 0; c < 3; ++c) out[c] = from[2 - c];
      return;
    }
    uint32_t pixel = 0;
    for (size_t i = bytes; i-- > 0;) pixel = pixel << 8 | from[i];
    for (size_t c = 0; c < 3; ++c) out[c] = masks_[c].of(pixel);
  }

  const EncodedImage& encoded_;
  int width_ = 0, height_ = 0, bits_ = 0;
  bool top_down_ = false;
  size_t pixels_ = 0;  ///< offset of the rows
  size_t stride_ = 0;  ///< bytes of a row
  std::array<std::array<uint8_t, 3>, 256> palette_ = {};
  std::array<Mask, 3> masks_;  ///< red, green, blue
};

}  // namespace

ImageHeader bmp_header(const EncodedImage& encoded) { return BmpDecoder(encoded).header(); }

Image decode_bmp(const EncodedImage& encoded, int channels) {
  Image image = BmpDecoder(encoded).decode();
  return channels == 1 ? to_grey(image) : image;
}

}  // namespace octet
