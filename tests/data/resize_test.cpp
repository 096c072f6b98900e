// SPDX-License-Identifier: Apache-2.0
// Resize against Pillow's own numbers and against the definition in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/data/transform.h"
#include "tests/data/images.h"

namespace octet {
namespace {

/// Pixels (37 y^2 + 91 x + 53 c x + 17 c) mod 256.
Image ruled_image(int height, int width) {
  Image image{height, width, 3, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        image.pixels.push_back(static_cast<uint8_t>((37 * y * y + 91 * x + 53 * c * x + 17 * c) % 256));
      }
    }
  }
  return image;
}

// Expected: Pillow 13.0, Image.fromarray(image).resize((width, height), Image.BILINEAR).
TEST(Resize, EqualsPillow) {
  const Image image = ruled_image(7, 9);
  EXPECT_EQ(
      resize(view(image), 3, 4).pixels,
      (std::vector<uint8_t>{112, 109, 112, 110, 145, 122, 134, 109, 139, 145, 93,  136, 124, 149, 118, 101, 113, 148,
                            100, 111, 98,  116, 131, 139, 145, 141, 117, 122, 149, 131, 128, 110, 122, 102, 117, 146}));
  EXPECT_EQ(
      resize(view(image), 2, 9).pixels,
      (std::vector<uint8_t>{67,  84,  101, 158, 163, 96,  124, 116, 174, 84,  135, 115, 110, 148, 121, 141, 90,  116,
                            101, 115, 134, 127, 68,  135, 158, 147, 141, 102, 119, 136, 193, 167, 77,  81,  151, 178,
                            119, 92,  119, 114, 183, 156, 98,  71,  97,  136, 119, 91,  131, 103, 139, 62,  151, 176}));
  const Image wider = resize(view(image), 7, 4);
  EXPECT_EQ(std::vector<uint8_t>(wider.pixels.begin(), wider.pixels.begin() + 24),
            (std::vector<uint8_t>{75,  85,  146, 91,  128, 128, 125, 146, 180, 141, 77,  123,
                                  112, 122, 73,  128, 159, 140, 162, 77,  111, 178, 114, 160}));
  Image grey{7, 9, 1, {}};
  for (size_t i = 0; i < image.pixels.size(); i += 3) grey.pixels.push_back(image.pixels[i]);
  EXPECT_EQ(resize(view(grey), 3, 4).pixels,
            (std::vector<uint8_t>{112, 110, 134, 145, 124, 101, 100, 116, 145, 122, 128, 102}));
}

/// One output sample of one axis by the definition: weights of the triangle of half width max(scale, 1).
double by_definition(const std::vector<double>& samples, int outputs, int position) {
  const double scale = static_cast<double>(samples.size()) / outputs, half = std::max(scale, 1.0);
  const double center = (position + 0.5) * scale;
  double sum = 0, weights = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double weight = std::max(0.0, 1 - std::abs(i + 0.5 - center) / half);
    sum += weight * samples[i];
    weights += weight;
  }
  return sum / weights;
}

TEST(Resize, FollowsTheDefinitionOnOneAxis) {
  for (const int inputs : {1, 2, 5, 64, 333}) {
    for (const int outputs : {1, 3, 64, 100, 224}) {
      const Image row = testing::noise(1, inputs, 1, inputs * 1000 + outputs);
      const Image result = resize(view(row), 1, outputs);
      const std::vector<double> samples(row.pixels.begin(), row.pixels.end());
      for (int i = 0; i < outputs; ++i) {
        // Rounding to a byte, and the fixed point's error of at most 2^-22 * 255 a tap.
        ASSERT_NEAR(result.pixels[i], by_definition(samples, outputs, i), 0.5 + 0.02) << inputs << " to " << outputs;
      }
    }
  }
}

TEST(Resize, RowsAndColumnsAgree) {
  const Image image = testing::noise(23, 31, 1, 4);
  Image turned{31, 23, 1, std::vector<uint8_t>(image.pixels.size())};
  for (int y = 0; y < 23; ++y) {
    for (int x = 0; x < 31; ++x) turned.pixels[x * 23 + y] = image.pixels[y * 31 + x];
  }
  const Image narrow = resize(view(image), 23, 12), low = resize(view(turned), 12, 23);
  for (int y = 0; y < 23; ++y) {
    for (int x = 0; x < 12; ++x) ASSERT_EQ(narrow.pixels[y * 12 + x], low.pixels[x * 23 + y]);
  }
}

TEST(Resize, SameSizeKeepsPixelsAndAViewReadsNothingOutside) {
  const Image image = testing::noise(20, 20, 3, 5);
  EXPECT_EQ(resize(view(image), 20, 20).pixels, image.pixels);
  Image changed = image;
  const Rectangle middle{5, 6, 9, 8};
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 20; ++x) {
      const bool inside = y >= 5 && y < 14 && x >= 6 && x < 14;
      if (!inside) std::fill_n(&changed.pixels[(y * 20 + x) * 3], 3, uint8_t{0});
    }
  }
  EXPECT_EQ(resize(view(image, middle), 5, 17).pixels, resize(view(changed, middle), 5, 17).pixels);
  EXPECT_NE(resize(view(image), 5, 17).pixels, resize(view(changed), 5, 17).pixels);
}

}  // namespace
}  // namespace octet
