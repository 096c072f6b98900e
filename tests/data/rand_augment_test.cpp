// SPDX-License-Identifier: Apache-2.0
// RandAugment: every operation on pixels whose result is known, and how often each is drawn.
#include "src/data/colours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/data/images.h"

namespace octet {
namespace {

using Row = std::vector<int>;

/// Applies an operation to a grey image.
Image applied(std::string_view name, Image image, double strength) {
  const auto operation = std::find_if(kRandomOperations.begin(), kRandomOperations.end(),
                                      [&](const RandomOperation& o) { return o.name == name; });
  EXPECT_NE(operation, kRandomOperations.end()) << name;
  operation->apply({image.pixels.data(), image.height, image.width, image.channels}, strength);
  return image;
}

Row row_after(std::string_view name, const Row& row, double strength) {
  Image image{1, static_cast<int>(row.size()), 1, {row.begin(), row.end()}};
  const Image after = applied(name, image, strength);
  return {after.pixels.begin(), after.pixels.end()};
}

TEST(RandAugment, ValuesChangeAsTheyAreDefined) {
  const Row row = {10, 60, 100, 250};
  EXPECT_EQ(row_after("identity", row, 1), row);
  EXPECT_EQ(row_after("brightness", row, 1), (Row{19, 114, 190, 255}));
  EXPECT_EQ(row_after("brightness", row, -1), (Row{1, 6, 10, 25}));
  EXPECT_EQ(row_after("contrast", row, -1), (Row{96, 101, 105, 120}));  // 0.1 v + 0.9 * 105
  EXPECT_EQ(row_after("posterize", row, 1), (Row{0, 48, 96, 240}));     // four bits are left
  EXPECT_EQ(row_after("posterize", row, 0.25), (Row{10, 60, 100, 250}));
  EXPECT_EQ(row_after("posterize", {11, 61}, 0.25), (Row{10, 60}));  // seven
  EXPECT_EQ(row_after("solarize", row, 0.5), (Row{10, 60, 100, 5}));
  EXPECT_EQ(row_after("solarize", row, 1), (Row{245, 195, 155, 5}));
  EXPECT_EQ(row_after("autocontrast", row, 1), (Row{0, 53, 96, 255}));
  EXPECT_EQ(row_after("autocontrast", {7, 7, 7}, 1), (Row{7, 7, 7}));
  Image colour{1, 1, 3, {200, 100, 50}};
  EXPECT_EQ(applied("color", colour, -1).pixels, (std::vector<uint8_t>{132, 122, 117}));  // 124.2 is its lightness
}

TEST(RandAugment, EqualizedValuesAreSpreadEvenly) {
  constexpr int kSide = 256, kValues = 64;
  Image image{kSide, kSide, 1, {}};
  for (int i = 0; i < kSide * kSide; ++i) image.pixels.push_back(static_cast<uint8_t>(100 + i % kValues));
  const Image after = applied("equalize", image, 1);
  constexpr int kCount = kSide * kSide / kValues, kStep = (kSide * kSide - kCount) / 255;  // as PIL.ImageOps.equalize
  for (int v = 0; v < kValues; ++v) EXPECT_EQ(after.pixels[v], std::min(255, (v * kCount + kStep / 2) / kStep)) << v;
  EXPECT_EQ(after.pixels[0], 0);
  EXPECT_EQ(after.pixels[kValues - 1], 255);
  EXPECT_EQ(row_after("equalize", {1, 2, 3}, 1), (Row{1, 2, 3}));  // too few pixels for a step
}

TEST(RandAugment, SharpnessIsAwayFromTheMeanOfNine) {
  Image image{3, 3, 1, {10, 10, 10, 10, 140, 10, 10, 10, 10}};
  const double mean = (8 * 10 + 5 * 140) / 13.0;  // 60
  std::vector<uint8_t> wanted = image.pixels;
  wanted[4] = static_cast<uint8_t>(std::lround(1.9 * 140 - 0.9 * mean));
  EXPECT_EQ(applied("sharpness", image, 1).pixels, wanted);
  wanted[4] = static_cast<uint8_t>(std::lround(0.1 * 140 + 0.9 * mean));
  EXPECT_EQ(applied("sharpness", image, -1).pixels, wanted);
}

TEST(RandAugment, PixelsMoveAsTheyAreDefined) {
  EXPECT_EQ(row_after("translate_x", {1, 2, 3, 4}, 1), (Row{0, 1, 2, 3}));  // 150 / 331 * 4, cut: 1
  EXPECT_EQ(row_after("translate_x", {1, 2, 3, 4}, -1), (Row{2, 3, 4, 0}));
  Image image{10, 10, 1, std::vector<uint8_t>(100, 0)};
  const auto set = [](Image& to, int y, int x) { to.pixels[y * 10 + x] = 200; };
  const auto moved = [&](std::string_view name, double strength, int y, int x) {
    Image one = image;
    set(one, y, x);
    const Image after = applied(name, one, strength);
    std::string places;
    for (int p = 0; p < 100; ++p)
      if (after.pixels[p] == 200) places += std::to_string(p / 10) + "," + std::to_string(p % 10) + " ";
    return places;
  };
  EXPECT_EQ(moved("translate_y", 1, 2, 3), "6,3 ");
  EXPECT_EQ(moved("shear_x", 1, 0, 3), "0,3 ");  // by 0.15 pixels in the first row
  EXPECT_EQ(moved("shear_x", 1, 8, 3), "8,6 ");  // by 2.55 in the ninth
  EXPECT_EQ(moved("shear_x", -1, 8, 3), "8,0 ");
  EXPECT_EQ(moved("shear_y", 1, 3, 8), "6,8 ");
  EXPECT_EQ(moved("rotate", 1, 1, 5), "2,7 ");  // clockwise around the middle: (0.5, -3.5) comes to (2.18, -2.78)
  EXPECT_EQ(moved("rotate", -1, 1, 4), "2,2 ");
}

TEST(RandAugment, DrawsEveryOperationAndBothWays) {
  Image image = testing::noise(32, 32, 3, 3);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(20 + value / 2);  // contrast that can be stretched
  std::map<std::vector<uint8_t>, int> counts;
  constexpr int kDraws = 2800;
  for (uint64_t i = 0; i < kDraws; ++i) {
    Image one = image;
    Random random({i});
    rand_augment({one.pixels.data(), 32, 32, 3}, 1, 15, random);
    ++counts[one.pixels];
  }
  for (const RandomOperation& operation : kRandomOperations)
    for (const double strength : {0.5, -0.5}) {
      if (strength < 0 && !operation.both_ways) continue;
      const int count = counts[applied(operation.name, image, strength).pixels];
      EXPECT_NEAR(count, kDraws / 14.0 / (operation.both_ways ? 2 : 1), 45) << operation.name << strength;
    }
  Image twice = image;
  Random random({1});
  rand_augment({twice.pixels.data(), 32, 32, 3}, 0, 15, random);
  EXPECT_EQ(twice.pixels, image.pixels);
}

}  // namespace
}  // namespace octet
