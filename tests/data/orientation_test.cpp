// SPDX-License-Identifier: Apache-2.0
// Images that carry an orientation: each of the eight, in each format; and EXIF data that is damaged.
#include <gtest/gtest.h>

#include "src/base/random.h"
#include "src/data/decoders.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::exif_bytes;
using testing::jpeg_bytes;
using testing::jpeg_with_exif;
using testing::noise;
using testing::png_bytes;
using testing::png_with_exif;
using testing::webp_bytes;
using testing::webp_with_exif;

/// The pixels that a camera held as `orientation` says stores of what a person sees: where the 0th row and the 0th
/// column of the stored image lie in the visible one, CIPA DC-008-2019, table 4, "Orientation".
Image stored_of(const Image& seen, int orientation) {
  const bool swapped = orientation >= 5;
  Image stored{swapped ? seen.width : seen.height, swapped ? seen.height : seen.width, seen.channels, {}};
  const int bottom = seen.height - 1, right = seen.width - 1;
  for (int row = 0; row < stored.height; ++row) {
    for (int column = 0; column < stored.width; ++column) {
      int y = 0, x = 0;
      if (orientation == 1) y = row, x = column;                   // row 0: top, column 0: left
      if (orientation == 2) y = row, x = right - column;           // top, right
      if (orientation == 3) y = bottom - row, x = right - column;  // bottom, right
      if (orientation == 4) y = bottom - row, x = column;          // bottom, left
      if (orientation == 5) x = row, y = column;                   // left, top
      if (orientation == 6) x = right - row, y = column;           // right, top
      if (orientation == 7) x = right - row, y = bottom - column;  // right, bottom
      if (orientation == 8) x = row, y = bottom - column;          // left, bottom
      for (int c = 0; c < seen.channels; ++c)
        stored.pixels.push_back(seen.pixels[(static_cast<size_t>(y) * seen.width + x) * seen.channels + c]);
    }
  }
  return stored;
}

Image decode(const std::string& bytes, int channels, Orientation orientation) {
  return decode_image(bytes, channels, "image", orientation);
}

ImageHeader header_of(const std::string& bytes) { return decode_header(bytes, "image"); }

int orientation_of(const std::string& exif) {
  return exif_orientation(reinterpret_cast<const uint8_t*>(exif.data()), exif.size());
}

void expect_equal(const Image& a, const Image& b, const std::string& what) {
  EXPECT_EQ(a.height, b.height) << what;
  EXPECT_EQ(a.width, b.width) << what;
  EXPECT_TRUE(a.pixels == b.pixels) << what;
}

/// `file`, whose pixels as they are stored are `stored`, gives what a person sees.
void expect_upright(const std::string& file, const Image& stored, int orientation, const std::string& what) {
  const ImageHeader header = header_of(file);
  EXPECT_EQ(header.orientation, orientation) << what;
  EXPECT_EQ(header.height, stored.height) << what;
  EXPECT_EQ(header.width, stored.width) << what;
  expect_equal(decode(file, stored.channels, Orientation::as_stored), stored, what + ", as stored");
  const Image seen = decode(file, stored.channels, Orientation::exif);
  expect_equal(stored_of(seen, orientation), stored, what + ", upright");
}

TEST(Orientation, EachOfTheEightInEachFormat) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      const std::string exif = exif_bytes(orientation, big_endian);
      const std::string what = std::to_string(orientation) + (big_endian ? " MM" : " II");
      const Image seen = noise(7, 12, 3, 5), grey = noise(5, 9, 1, 6);
      const Image stored = stored_of(seen, orientation), stored_grey = stored_of(grey, orientation);

      const std::string png = png_bytes(stored);
      expect_upright(png_with_exif(png, exif), stored, orientation, "PNG " + what);
      expect_upright(png_with_exif(png, exif, /*behind_pixels=*/true), stored, orientation, "PNG, behind " + what);
      expect_equal(decode(png_with_exif(png, exif), 3, Orientation::exif), seen, "PNG seen " + what);
      expect_upright(png_with_exif(png_bytes(stored_grey), exif), stored_grey, orientation, "grey PNG " + what);

      const std::string webp = webp_bytes(stored);
      expect_upright(webp_with_exif(webp, exif, stored), stored, orientation, "WebP " + what);
      const std::string prefixed = std::string("Exif\0\0", 6) + exif;
      expect_upright(webp_with_exif(webp, prefixed, stored), stored, orientation, "WebP, prefix " + what);

      const std::string jpeg = jpeg_bytes(stored, 90);
      const Image near = decode(jpeg, 3, Orientation::as_stored);
      expect_upright(jpeg_with_exif(jpeg, exif), near, orientation, "JPEG " + what);
      // Adobe's XMP is in an APP1 of its own, before or behind.
      const std::string xmp = "\xFF\xE1" + std::string("\0\x0B", 2) + std::string("http://n\0", 9);
      expect_upright(jpeg.substr(0, 2) + xmp + jpeg_with_exif(jpeg, exif).substr(2), near, orientation, "XMP " + what);
    }
  }
}

TEST(Orientation, FilesThatSayNothingAreUpright) {
  const Image image = noise(4, 6, 3, 1);
  for (const std::string& file : {png_bytes(image), webp_bytes(image)}) {
    EXPECT_EQ(header_of(file).orientation, 1);
    expect_equal(decode(file, 3, Orientation::exif), image, "no EXIF");
  }
}

TEST(Orientation, NumbersThatDoNotExistAreUpright) {
  for (const int value : {0, 9, 65535}) EXPECT_EQ(orientation_of(exif_bytes(value, false)), 1) << value;
  std::string of_another_type = exif_bytes(6, true);
  of_another_type[8 + 2 + 12 + 3] = 4;  // LONG
  EXPECT_EQ(orientation_of(of_another_type), 1);
  std::string of_two_values = exif_bytes(6, true);
  of_two_values[8 + 2 + 12 + 7] = 2;
  EXPECT_EQ(orientation_of(of_two_values), 1);
}

/// Sizes and places in EXIF data are the file's word. ASan sees a read behind the end of a copy that is just as long.
TEST(Orientation, DamagedExifIsBoundsChecked) {
  const std::string good = exif_bytes(6, false);
  for (size_t size = 0; size < good.size(); ++size) {
    const std::vector<uint8_t> part(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const size_t value_ends = 8 + 2 + 12 + 10;
    EXPECT_EQ(exif_orientation(part.data(), size), size < value_ends ? 1 : 6) << size;
  }
  for (const uint32_t directory : {0u, 7u, 9u, 40u, 46u, 47u, 0x7fffffffu, 0xffffffffu}) {
    std::string exif = good;
    for (size_t i = 0; i < 4; ++i) exif[4 + i] = static_cast<char>(directory >> 8 * i & 0xff);
    const std::vector<uint8_t> copy(exif.begin(), exif.end());
    EXPECT_EQ(exif_orientation(copy.data(), copy.size()), 1) << directory;
  }
  std::string many = good;
  many[8] = many[9] = '\xff';  // 65535 entries: all but three are behind the end
  EXPECT_EQ(orientation_of(many), 6);
  Random random({5});
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> exif(good.begin(), good.end());
    for (int k = 0; k < 3; ++k) exif[random.below(exif.size())] = static_cast<uint8_t>(random.below(256));
    const int orientation = exif_orientation(exif.data(), exif.size());
    EXPECT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

/// Chunks of PNG and WebP that say that they are longer than the file, and a JPEG's marker of nothing.
TEST(Orientation, DamagedContainersAreBoundsChecked) {
  const Image image = noise(6, 5, 3, 3);
  const std::string exif = exif_bytes(6, true);
  Random random({6});
  const std::string files[] = {png_with_exif(png_bytes(image), exif), webp_with_exif(webp_bytes(image), exif, image),
                               jpeg_with_exif(jpeg_bytes(image, 80), exif), png_with_exif(png_bytes(image), "")};
  for (int i = 0; i < 8000; ++i) {
    std::string bytes = files[i % 4];
    for (int k = 0; k < 2; ++k) bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    try {
      decode(bytes, 3, Orientation::exif);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  }
  EXPECT_EQ(header_of(jpeg_with_exif(jpeg_bytes(image, 80), "")).orientation, 1);
}

}  // namespace
}  // namespace octet
