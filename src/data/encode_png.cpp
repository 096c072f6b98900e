#include <fmt/format.h>
#include <png.h>

#include "src/common/error.h"
#include "src/data/dataset.h"

namespace octet {

std::string encode_png(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto write = [&](void* memory, png_alloc_size_t& bytes) {
    if (png_image_write_to_memory(&png, memory, &bytes, 0, image.pixels.data(), 0, nullptr) == 0)
      throw promise_error(fmt::format("a picture of {}x{} as PNG: {}", image.height, image.width, png.message));
  };
  png_alloc_size_t bytes = 0;
  write(nullptr, bytes);
  std::string file(bytes, '\0');
  write(file.data(), bytes);
  file.resize(bytes);
  return file;
}

}  // namespace octet
