// SPDX-License-Identifier: Apache-2.0
#include "tests/data/images.h"

#include <cstdio>
#include <cstdlib>
// jpeglib.h needs size_t and FILE.
#include <jpeglib.h>
#include <png.h>
#include <unistd.h>
#include <webp/encode.h>
#include <zlib.h>

#include <atomic>
#include <fstream>

#include <fmt/format.h>

#include "src/base/files.h"
#include "src/base/random.h"

namespace octet::testing {

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count = 0;
  path_ = std::filesystem::temp_directory_path() /
          ("octet_data_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
  std::filesystem::create_directories(path_);
}

void TemporaryFolder::write(const std::string& name, const std::string& contents) const {
  const std::filesystem::path target = path_ / name;
  std::filesystem::create_directories(target.parent_path());
  std::ofstream(target, std::ios::binary) << contents;
}

Image gradient(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int values[] = {y * 255 / height, x * 255 / width, (x + y) * 255 / (height + width)};
      for (int c = 0; c < channels; ++c) image.pixels.push_back(static_cast<uint8_t>(values[c]));
    }
  }
  return image;
}

Image noise(int height, int width, int channels, uint64_t seed) {
  Image image{height, width, channels, {}};
  Random random({seed});
  image.pixels.resize(static_cast<size_t>(height) * width * channels);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random.below(256));
  return image;
}

std::string jpeg_bytes(const Image& image, int quality, bool progressive) {
  return jpeg_of(image, quality, {.progressive = progressive});
}

std::string jpeg_of(const Image& image, int quality, const JpegForm& form) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_height = image.height;
  info.image_width = image.width;
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, /*force_baseline=*/!form.extended);
  info.restart_interval = static_cast<unsigned>(form.restarts);
  if (info.jpeg_color_space == JCS_YCbCr) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const size_t stride = static_cast<size_t>(image.width) * image.channels;
    auto* row = const_cast<uint8_t*>(image.pixels.data() + info.next_scanline * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return bytes;
}

std::string png_bytes(const Image& image) {
  static constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = image.width;
  header.height = image.height;
  header.format = kFormats[image.channels - 1];
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&header, nullptr, &size, 0, image.pixels.data(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

std::string png_of_16_bits(int height, int width, const std::vector<uint16_t>& pixels) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string bytes;
  const auto append = [](png_structp writer, png_bytep data, size_t size) {
    static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<char*>(data), size);
  };
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 16, PNG_COLOR_TYPE_GRAY,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_set_swap(png);  // from this machine's order
  for (int y = 0; y < height; ++y)
    png_write_row(png, reinterpret_cast<png_const_bytep>(pixels.data() + static_cast<size_t>(y) * width));
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string webp_bytes(const Image& image) {
  uint8_t* buffer = nullptr;
  const size_t size = WebPEncodeLosslessRGB(image.pixels.data(), image.width, image.height, image.width * 3, &buffer);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  WebPFree(buffer);
  return bytes;
}

namespace {

/// `value` in so many bytes.
std::string bytes_of(uint32_t value, size_t count, bool big_endian) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[big_endian ? count - 1 - i : i] = static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

std::string riff_chunk(const std::string& name, const std::string& data) {
  return name + bytes_of(static_cast<uint32_t>(data.size()), 4, false) + data + std::string(data.size() % 2, '\0');
}

}  // namespace

std::string tar_member(const std::string& name, const std::string& contents, char type) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", contents.size()));
  header.replace(148, 8, "        ");
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}

std::string tar_of(const TemporaryFolder& folder, const std::string& top) {
  std::string archive;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.is_regular_file())
      archive += tar_member(top + std::filesystem::relative(entry.path(), folder.path()).string(),
                            read_file(entry.path().string()));
  return archive + kTarEnd;
}

DatasetSpec write_boxes(const TemporaryFolder& folder, int count, const std::string& ending,
                        const std::function<ImageSize(int number)>& size_of,
                        const std::function<std::string(const ImageSize& size, int number)>& file) {
  std::string images, boxes;
  for (int i = 0; i < count; ++i) {
    const ImageSize size = size_of(i);
    folder.write(fmt::format("train/{}{}", i, ending), file(size, i));
    images += fmt::format(R"({}{{"id": {}, "file_name": "{}{}", "width": {}, "height": {}}})", i ? ", " : "", i, i,
                          ending, size.width, size.height);
    for (int k = 0; k < 2; ++k)
      boxes += fmt::format(R"({}{{"image_id": {}, "category_id": {}, "bbox": [{}, {}, 17, {}]}})", i + k ? ", " : "", i,
                           k, 3 + 20 * k, 5 + i, 15 + i);
  }
  folder.write("train.json", fmt::format(R"({{"images": [{}], "categories": [{{"id": 0, "name": "a"}},
                                             {{"id": 1, "name": "b"}}], "annotations": [{}]}})",
                                         images, boxes));
  return {.format = "coco", .path = folder.path(), .split = "train", .channels = 3, .labels = Labels::boxes};
}

std::string exif_bytes(int orientation, bool big_endian) {
  const auto number = [&](uint32_t value, size_t bytes) { return bytes_of(value, bytes, big_endian); };
  const auto entry = [&](uint32_t tag, uint32_t type, uint32_t value) {
    const std::string in_place = type == 3 ? number(value, 2) + std::string(2, '\0') : number(value, 4);
    return number(tag, 2) + number(type, 2) + number(1, 4) + in_place;
  };
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(3, 2) + entry(0x0106, 3, 2) +
         entry(0x0112, 3, static_cast<uint32_t>(orientation)) + entry(0x8769, 4, 0) + number(0, 4);
}

std::string jpeg_with_exif(const std::string& file, const std::string& exif) {
  const std::string data = std::string("Exif\0\0", 6) + exif;
  const std::string marker = "\xFF\xE1" + bytes_of(static_cast<uint32_t>(data.size() + 2), 2, true) + data;
  return file.substr(0, 2) + marker + file.substr(2);
}

std::string png_with_exif(const std::string& file, const std::string& exif, bool behind_pixels) {
  const std::string body = "eXIf" + exif;
  const auto sum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
  const std::string chunk = bytes_of(static_cast<uint32_t>(exif.size()), 4, true) + body + bytes_of(sum, 4, true);
  constexpr size_t kSignatureAndHeader = 8 + 12 + 13, kEnd = 12;
  const size_t place = behind_pixels ? file.size() - kEnd : kSignatureAndHeader;
  return file.substr(0, place) + chunk + file.substr(place);
}

std::string webp_with_exif(const std::string& file, const std::string& exif, const Image& image) {
  constexpr char kHasExif = 0x08;
  const std::string extended = std::string(1, kHasExif) + std::string(3, '\0') +
                               bytes_of(static_cast<uint32_t>(image.width - 1), 3, false) +
                               bytes_of(static_cast<uint32_t>(image.height - 1), 3, false);
  return riff_chunk("RIFF", "WEBP" + riff_chunk("VP8X", extended) + file.substr(12) + riff_chunk("ABCD", "odd") +
                                riff_chunk("EXIF", exif));
}

std::string gzip_bytes(const std::string& data) {
  constexpr int kGzip = 15 + 16;
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string bytes(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

}  // namespace octet::testing
