// SPDX-License-Identifier: Apache-2.0
// BMP and WebP; PNGs of 1 and of 16 bits; and what is no image.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "src/data/decoders.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::noise;
using testing::webp_bytes;

Image decoded(const std::string& bytes, int channels = 3) { return decode_image(bytes, channels, "image"); }

std::string little(uint32_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  return text;
}

/// What stands in a BMP before its pixels.
struct BmpForm {
  int32_t width = 3, height = 2;  ///< height below 0: the first row is the upper one
  uint32_t bits = 24, compression = 0, colours = 0;
  std::string between = "";  ///< masks or palette
  uint32_t header = 40;      ///< its bytes; 12: the oldest, without compression and number of colours
};

std::string bmp(const BmpForm& form, const std::string& pixels) {
  std::string header = little(form.header, 4);
  if (form.header == 12) {
    header += little(static_cast<uint32_t>(form.width), 2) + little(static_cast<uint32_t>(form.height), 2) +
              little(1, 2) + little(form.bits, 2);
  } else {
    header += little(static_cast<uint32_t>(form.width), 4) + little(static_cast<uint32_t>(form.height), 4) +
              little(1, 2) + little(form.bits, 2) + little(form.compression, 4) + little(0, 12) +
              little(form.colours, 4) + little(0, 4);
  }
  const std::string all = header + form.between;
  return "BM" + little(static_cast<uint32_t>(14 + all.size() + pixels.size()), 4) + little(0, 4) +
         little(static_cast<uint32_t>(14 + all.size()), 4) + all + pixels;
}

/// 3x2: red, green, blue; grey, white, black.
const std::vector<uint8_t> kColours = {255, 0, 0, 0, 255, 0, 0, 0, 255, 128, 128, 128, 255, 255, 255, 0, 0, 0};

std::string text(std::initializer_list<int> bytes) {
  std::string all;
  for (const int byte : bytes) all += static_cast<char>(byte);
  return all;
}

TEST(Bmp, TrueColourInEitherOrderOfRows) {
  const std::string upper = text({0, 0, 255, 0, 255, 0, 255, 0, 0, 0, 0, 0});  // blue first; rows of whole 4 bytes
  const std::string lower = text({128, 128, 128, 255, 255, 255, 0, 0, 0, 7, 7, 7});
  EXPECT_EQ(decoded(bmp({}, lower + upper)).pixels, kColours);
  EXPECT_EQ(decoded(bmp({.height = -2}, upper + lower)).pixels, kColours);
  EXPECT_EQ(decoded(bmp({.header = 12}, lower + upper)).pixels, kColours);
  EXPECT_EQ(decoded(bmp({.between = std::string(68, 'x'), .header = 108}, lower + upper)).pixels, kColours);
  EXPECT_EQ(decoded(bmp({}, lower + upper), 1).pixels, to_grey({2, 3, 3, kColours}).pixels);
  const std::string upper32 = text({0, 0, 255, 9, 0, 255, 0, 9, 255, 0, 0, 9});
  const std::string lower32 = text({128, 128, 128, 0, 255, 255, 255, 0, 0, 0, 0, 0});
  EXPECT_EQ(decoded(bmp({.bits = 32}, lower32 + upper32)).pixels, kColours);
}

TEST(Bmp, Palettes) {
  const std::string palette = text({0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0, 128, 128, 128, 0, 255, 255, 255, 0});
  const std::string eight = text({3, 4, 5, 0, 0, 1, 2, 0}), four = text({0x34, 0x50, 0, 0, 0x01, 0x20, 0, 0});
  EXPECT_EQ(decoded(bmp({.bits = 8, .colours = 5, .between = palette}, eight)).pixels, kColours);  // colour 5: black
  EXPECT_EQ(decoded(bmp({.bits = 4, .colours = 5, .between = palette}, four)).pixels, kColours);
  const std::string two = text({10, 20, 30, 0, 40, 50, 60, 0});
  EXPECT_EQ(decoded(bmp({.width = 10, .height = 1, .bits = 1, .between = two}, text({0x80, 0x40, 0, 0}))).pixels,
            (std::vector<uint8_t>{60, 50, 40, 30, 20, 10, 30, 20, 10, 30, 20, 10, 30, 20, 10,
                                  30, 20, 10, 30, 20, 10, 30, 20, 10, 30, 20, 10, 60, 50, 40}));
}

TEST(Bmp, BitFields) {
  const std::string masks565 = little(0xf800, 4) + little(0x07e0, 4) + little(0x001f, 4);
  const std::string row = little(0xf800, 2) + little(0x07e0, 2) + little(0x001f, 2) + little(0, 2);
  const std::vector<uint8_t> first(kColours.begin(), kColours.begin() + 9);
  EXPECT_EQ(decoded(bmp({.height = 1, .bits = 16, .compression = 3, .between = masks565}, row)).pixels, first);
  const std::string row555 = little(0x7c00, 2) + little(0x03e0, 2) + little(0x0010, 2) + little(0, 2);
  EXPECT_EQ(decoded(bmp({.height = 1, .bits = 16}, row555)).pixels,
            (std::vector<uint8_t>{255, 0, 0, 0, 255, 0, 0, 0, 132}));  // 16 of 31
  const std::string masks = little(0x000000ff, 4) + little(0x0000ff00, 4) + little(0x00ff0000, 4);
  EXPECT_EQ(decoded(bmp({.width = 1, .height = 1, .bits = 32, .compression = 3, .between = masks}, text({1, 2, 3, 4})))
                .pixels,
            (std::vector<uint8_t>{1, 2, 3}));
}

TEST(Bmp, WhatIsNotReadIsNamed) {
  const std::string row(12, '\0');
  expect_part(data_refusal([&] { decoded(bmp({.bits = 8, .compression = 1}, row)); }),
              "image: BMP: its pixels are compressed (method 1); save it as PNG");
  expect_part(data_refusal([&] { decoded(bmp({.bits = 2}, row)); }), "2 bits a pixel");
  expect_part(data_refusal([&] { decoded(bmp({.height = 0}, row)); }), "3x0 pixels");
  expect_part(data_refusal([&] { decoded(bmp({.width = -3}, row)); }), "-3x2 pixels");
  expect_part(data_refusal([&] { decoded(bmp({}, row)); }), "BMP: ends early");
  expect_part(data_refusal([&] { decoded(bmp({.bits = 8, .colours = 300}, row)); }), "300 colours");
  expect_part(data_refusal([&] { decoded(bmp({.width = 8000, .height = 8000}, row)); }), "announces 8000x8000 pixels");
  const BmpForm smallest{.width = INT32_MIN, .height = INT32_MIN};
  expect_part(data_refusal([&] { decoded(bmp(smallest, row)); }), "pixels");
  const std::string good = bmp({.height = -2}, row + row);
  for (size_t size = 0; size < good.size(); ++size) {
    const std::vector<char> part(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    expect_part(data_refusal([&] { decoded(std::string(part.begin(), part.end())); }), "image: ");
  }
}

TEST(WebP, KeepsEveryPixelOfALosslessFile) {
  const Image image = noise(17, 31, 3, 5);
  const Image back = decoded(webp_bytes(image));
  EXPECT_EQ(back.height, 17);
  EXPECT_EQ(back.width, 31);
  EXPECT_EQ(back.pixels, image.pixels);
  EXPECT_EQ(decoded(webp_bytes(image), 1).pixels, to_grey(image).pixels);
}

TEST(WebP, EveryTruncationIsAnError) {
  const std::string bytes = webp_bytes(noise(24, 24, 3, 1));
  for (size_t size = 0; size < bytes.size(); size += 7)
    expect_part(data_refusal([&] { decoded(bytes.substr(0, size)); }), "image: ");
}

TEST(WebP, AnAnimationIsNamed) {
  const std::string extended = text({0x02, 0, 0, 0, 7, 0, 0, 7, 0, 0});  // 8x8, with animation
  const std::string animation = text({0, 0, 0, 0, 0, 0});
  const std::string chunks = "WEBPVP8X" + little(10, 4) + extended + "ANIM" + little(6, 4) + animation;
  expect_part(data_refusal([&] { decoded("RIFF" + little(static_cast<uint32_t>(chunks.size()), 4) + chunks); }),
              "image: WebP: an animation; save the image that is meant by itself");
}

std::string chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto big = [](uint32_t v) { return text({int(v >> 24), int(v >> 16 & 255), int(v >> 8 & 255), int(v & 255)}); };
  return big(static_cast<uint32_t>(data.size())) + body +
         big(static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size())));
}

/// A grey PNG; `rows`: with the filter byte before each.
std::string grey_png(uint32_t width, uint32_t height, int bits, const std::string& rows) {
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size(),
            9);
  packed.resize(size);
  const auto big = [](uint32_t v) { return text({int(v >> 24), int(v >> 16 & 255), int(v >> 8 & 255), int(v & 255)}); };
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", big(width) + big(height) + text({bits, 0, 0, 0, 0})) +
         chunk("IDAT", packed) + chunk("IEND", "");
}

/// Deflate's 1032 bytes from one, eight pixels in each: 7,913 pixels a byte.
TEST(Png, ABlackPageOfOneBitIsNotTooLargeForItsBytes) {
  constexpr uint32_t kSide = 4000;
  const std::string rows(kSide * (1 + kSide / 8), '\0');
  const std::string bytes = grey_png(kSide, kSide, 1, rows);
  EXPECT_LT(bytes.size(), 2048u);
  const Image image = decoded(bytes, 1);
  EXPECT_EQ(image.height, 4000);
  EXPECT_EQ(std::count(image.pixels.begin(), image.pixels.end(), 0), 16'000'000);
  // 8 bits a pixel cannot come from so few.
  const std::string lies = grey_png(kSide, kSide, 8, rows);
  expect_part(data_refusal([&] { decoded(lies, 1); }), "announces 4000x4000 pixels");
}

TEST(Png, BitsInUseOfSixteen) {
  const auto bits_of = [](int high, int low) {
    const std::string bytes = grey_png(1, 2, 16, text({0, high, low, 0, 0, 1}));
    const ImageHeader header = decode_header(bytes, "image");
    EXPECT_EQ(header.bits, 16);
    return bits_in_use(header, decoded(bytes, 1));
  };
  EXPECT_EQ(bits_of(0x0f, 0xff), 12);
  EXPECT_EQ(bits_of(0x10, 0x00), 13);
  EXPECT_EQ(bits_of(0x03, 0xff), 10);
  EXPECT_EQ(bits_of(0xff, 0x00), 16);
}

TEST(Damage, OtherFormatsAreNamed) {
  expect_part(data_refusal([] { decoded("GIF89a........"); }),
              "image: a GIF file; JPEG, PNG, BMP and WebP are read: save the image as one of them");
  expect_part(data_refusal([] { decoded(std::string("II*\0....", 8)); }), "a TIFF file");
  expect_part(data_refusal([] {
                decoded(
                    std::string("\0\0\0\x18"
                                "ftypheic",
                                12));
              }),
              "a HEIF or AVIF file");
}

}  // namespace
}  // namespace octet
