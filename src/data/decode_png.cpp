// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/data/dataset.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

/// Deflate takes at least 2 bits for 258 bytes (a length and a distance), so a byte gives at most 1032 bytes of pixels.
constexpr uint64_t kMostBytesPerByte = 1032;
constexpr png_alloc_size_t kMostChunkBytes = png_alloc_size_t{16} << 20;  // of texts and profiles, which are not used

/// What libpng's callbacks work on.
struct Handler {
  const uint8_t* data;
  size_t left;
  char message[160];
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* handler = static_cast<Handler*>(png_get_error_ptr(png));
  std::snprintf(handler->message, sizeof handler->message, "%s", message);
  png_longjmp(png, 1);
}

/// Ignores warnings, which are about colour profiles and the like: damaged pixels are errors.
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep target, size_t size) {
  auto* handler = static_cast<Handler*>(png_get_io_ptr(png));
  if (size > handler->left) png_error(png, "ends early");
  std::memcpy(target, handler->data, size);
  handler->data += size;
  handler->left -= size;
}

class PngDecoder {
 public:
  explicit PngDecoder(const EncodedImage& encoded) : encoded_(encoded), handler_{encoded.data, encoded.size, ""} {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  ImageHeader header() {
    read_checked_header();
    return {.height = static_cast<int>(png_get_image_height(png_, info_)),
            .width = static_cast<int>(png_get_image_width(png_, info_)),
            .orientation = orientation(),
            .bits = png_get_bit_depth(png_, info_)};
  }

  /// Returns RGB or grey pixels, as the file has them; numbers: one channel of the places in the palette or, of a grey
  /// file, of the samples as they are.
  Image decode(bool numbers = false) {
    read_checked_header();
    if (numbers) require_numbers();
    if (!(numbers ? choose_numbers() : choose_output())) fail();
    Image image{static_cast<int>(png_get_image_height(png_, info_)),
                static_cast<int>(png_get_image_width(png_, info_)),
                png_get_channels(png_, info_),
                {}};
    const size_t stride = png_get_rowbytes(png_, info_);
    image.pixels.resize(stride * image.height);
    std::vector<png_bytep> rows(image.height);
    for (int y = 0; y < image.height; ++y) rows[y] = image.pixels.data() + y * stride;
    if (!read_pixels(rows.data())) fail();
    return image;
  }

 private:
  [[noreturn]] void fail() const { throw data_error(encoded_.name + ": PNG: " + handler_.message); }

  void read_checked_header() {
    if (!read_header()) fail();
    const unsigned bits = unsigned{png_get_bit_depth(png_, info_)} * png_get_channels(png_, info_);
    check_dimensions(encoded_, png_get_image_width(png_, info_), png_get_image_height(png_, info_),
                     kMostBytesPerByte * 8 / bits);
  }

  /// Returns the orientation in the chunk eXIf (PNG, third edition, 11.3.4.5), which may also follow the pixels. A
  /// chunk is its size, its name, so many bytes and a checksum.
  int orientation() const {
    constexpr size_t kSignature = 8, kFrame = 12;
    for (size_t at = kSignature; at < encoded_.size && encoded_.size - at >= kFrame;) {
      const uint8_t* chunk = encoded_.data + at;
      const size_t size = size_t{chunk[0]} << 24 | size_t{chunk[1]} << 16 | size_t{chunk[2]} << 8 | chunk[3];
      if (size > encoded_.size - at - kFrame) return 1;
      if (std::memcmp(chunk + 4, "eXIf", 4) == 0) return exif_orientation(chunk + 8, size);
      at += kFrame + size;
    }
    return 1;
  }

  void require_numbers() const {
    const auto kind = png_get_color_type(png_, info_);
    if (kind != PNG_COLOR_TYPE_PALETTE && kind != PNG_COLOR_TYPE_GRAY)
      throw data_error(encoded_.name +
                       ": its pixels are colours, no numbers of classes: let the file of data.classes say which colour "
                       "is which class, in lines NAME R G B");
    if (png_get_bit_depth(png_, info_) == 16)
      throw data_error(encoded_.name + ": a mask of 16 bits; masks have up to 8, one for each pixel's class");
  }

  bool read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &handler_, on_error, on_warning);
    if (png_ == nullptr) {
      std::snprintf(handler_.message, sizeof handler_.message, "libpng cannot start");
      return false;
    }
    if (setjmp(png_jmpbuf(png_))) return false;
    info_ = png_create_info_struct(png_);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_set_read_fn(png_, &handler_, on_read);
    png_read_info(png_, info_);
    return true;
  }

  /// Asks libpng for samples of 8 bits, without palette and alpha.
  bool choose_output() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  /// Asks libpng for numbers of up to 8 bits, a byte each.
  bool choose_numbers() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_packing(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_pixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);  // checksums at the end
    return true;
  }

  const EncodedImage encoded_;
  Handler handler_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

ImageHeader png_header(const EncodedImage& encoded) { return PngDecoder(encoded).header(); }

Image decode_png(const EncodedImage& encoded, int channels) {
  Image image = PngDecoder(encoded).decode();
  if (image.channels == channels) return image;
  return channels == 1 ? to_grey(image) : in_colour(std::move(image));
}

Image decode_numbers(std::string_view bytes, const std::string& name) {
  decode_header(bytes, name);  // says what the file is, if it is no PNG
  return PngDecoder({bytes, name}).decode(/*numbers=*/true);
}

std::string encode_png(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto write = [&](void* memory, png_alloc_size_t& bytes) {
    if (png_image_write_to_memory(&png, memory, &bytes, 0, image.pixels.data(), 0, nullptr) == 0)
      throw promise_error(fmt::format("an image of {}x{} as PNG: {}", image.height, image.width, png.message));
  };
  png_alloc_size_t bytes = 0;
  write(nullptr, bytes);
  std::string file(bytes, '\0');
  write(file.data(), bytes);
  file.resize(bytes);
  return file;
}

}  // namespace octet
