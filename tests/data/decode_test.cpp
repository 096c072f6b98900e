// SPDX-License-Identifier: Apache-2.0
// JPEG and PNG: what comes back, and damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/random.h"
#include "src/data/decoders.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::gradient;
using testing::jpeg_bytes;
using testing::noise;
using testing::png_bytes;

Image decode(const std::string& bytes, int channels) { return decode_image(bytes, channels, "image"); }

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.channels, b.channels);
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) largest = std::max(largest, std::abs(a.pixels[i] - b.pixels.at(i)));
  return largest;
}

TEST(Png, KeepsEveryPixel) {
  for (const int channels : {1, 3}) {
    const Image image = noise(17, 31, channels, 5);
    EXPECT_EQ(decode(png_bytes(image), channels).pixels, image.pixels);
  }
}

TEST(Png, AlphaIsDroppedAndGreyConverted) {
  const Image colour = noise(9, 7, 3, 6), grey = noise(9, 7, 1, 7);
  Image with_alpha{9, 7, 4, {}};
  for (size_t i = 0; i < colour.pixels.size(); ++i) {
    with_alpha.pixels.push_back(colour.pixels[i]);
    if (i % 3 == 2) with_alpha.pixels.push_back(static_cast<uint8_t>(i));
  }
  EXPECT_EQ(decode(png_bytes(with_alpha), 3).pixels, colour.pixels);
  EXPECT_EQ(decode(png_bytes(colour), 1).pixels, to_grey(colour).pixels);
  const Image repeated = decode(png_bytes(grey), 3);
  for (size_t i = 0; i < repeated.pixels.size(); ++i) ASSERT_EQ(repeated.pixels[i], grey.pixels[i / 3]);
}

TEST(Grey, WeightsOfBt601) {
  const Image image{1, 4, 3, {255, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255}};
  EXPECT_EQ(to_grey(image).pixels, (std::vector<uint8_t>{255, 76, 150, 29}));
}

TEST(Jpeg, RoundTripIsNear) {
  for (const bool progressive : {false, true}) {
    const Image colour = gradient(40, 56, 3), grey = gradient(40, 56, 1);
    EXPECT_LE(largest_difference(decode(jpeg_bytes(colour, 98, progressive), 3), colour), 6);
    EXPECT_LE(largest_difference(decode(jpeg_bytes(grey, 98, progressive), 1), grey), 3);
    EXPECT_LE(largest_difference(decode(jpeg_bytes(colour, 98, progressive), 1), to_grey(colour)), 4);
    EXPECT_EQ(decode(jpeg_bytes(grey, 98, progressive), 3).channels, 3);
  }
}

TEST(Jpeg, Inks) {
  // libjpeg marks CMYK files as Adobe's, whose inks are inverted: 255 is no ink.
  Image inks{16, 16, 4, {}};
  for (int i = 0; i < 256; ++i) inks.pixels.insert(inks.pixels.end(), {200, 100, 50, 255});
  const Image colour = decode(jpeg_bytes(inks, 100), 3);
  ASSERT_EQ(colour.pixels.size(), 768u);
  EXPECT_NEAR(colour.pixels[0], 200, 2);
  EXPECT_NEAR(colour.pixels[1], 100, 2);
  EXPECT_NEAR(colour.pixels[2], 50, 2);
}

TEST(Damage, EveryTruncationIsAnError) {
  const std::string jpeg = jpeg_bytes(noise(24, 24, 3, 1), 80), png = png_bytes(noise(24, 24, 3, 1));
  const std::string progressive = jpeg_bytes(noise(24, 24, 3, 1), 80, true);
  for (const std::string& bytes : {jpeg, png, progressive}) {
    for (size_t size = 0; size < bytes.size(); size += 7) {
      expect_part(data_refusal([&] { decode(bytes.substr(0, size), 3); }), "image: ");
    }
  }
}

TEST(Damage, AlteredBytesNeverCrash) {
  const std::string files[] = {jpeg_bytes(noise(24, 24, 3, 1), 80), png_bytes(noise(24, 24, 3, 1)),
                               jpeg_bytes(noise(24, 24, 3, 1), 80, true)};
  Random random({11});
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = files[i % 3];
    for (int k = 0; k < 3; ++k) bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    try {
      decode(bytes, i % 2 ? 1 : 3);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  }
  EXPECT_GT(refused, 1000);  // PNG's checksums alone find nearly a third
}

TEST(Damage, PngChecksumIsChecked) {
  std::string bytes = png_bytes(noise(24, 24, 3, 1));
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);
  expect_part(data_refusal([&] { decode(bytes, 3); }), "image: PNG: ");
}

TEST(Damage, HugeSizesAreRefusedBeforeMemoryIsTaken) {
  std::string jpeg = jpeg_bytes(gradient(16, 16, 3), 90);
  const size_t frame = jpeg.find("\xFF\xC0");  // SOF0: length, precision, height, width
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x1f\xff\x1f\xff");
  expect_part(data_refusal([&] { decode(jpeg, 3); }), "announces 8191x8191 pixels");
  jpeg.replace(frame + 5, 4, "\xff\xff\xff\xff");
  expect_part(data_refusal([&] { decode(jpeg, 3); }), "");
}

TEST(Damage, OtherFilesAreNamed) {
  expect_part(data_refusal([] { decode("hello, world", 3); }), "image: neither JPEG nor PNG, BMP or WebP");
  expect_part(data_refusal([] { decode("", 3); }), "neither JPEG nor PNG");
}

}  // namespace
}  // namespace octet
