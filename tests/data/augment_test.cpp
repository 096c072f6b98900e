// SPDX-License-Identifier: Apache-2.0
// Augmentation: exact pixels where they can be known, statistics where they are random.
#include "src/data/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/data/images.h"

namespace octet {
namespace {

/// A grey image whose pixels say where they are: the row, or the column.
Image places(int height, int width, bool rows) {
  Image image{height, width, 1, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) image.pixels.push_back(static_cast<uint8_t>(rows ? y : x));
  return image;
}

/// torchvision.transforms.functional.center_crop: int(round((height - crop) / 2.0)), and Python's round() of a half
/// goes to the even neighbour, as lrint's does.
TEST(CentreCrop, IsTorchvisions) {
  for (int crop = 1; crop <= 40; ++crop) {
    for (int slack = 0; slack <= 60; ++slack) {
      const int wide = slack * 7 % 61;
      Transform transform{.channels = 1, .height = crop, .width = crop, .even_margin = true};
      const long top = std::lrint(slack / 2.0), left = std::lrint(wide / 2.0);
      ASSERT_EQ(evaluation_image(places(crop + slack, crop + wide, true), transform).pixels.front(), top) << slack;
      ASSERT_EQ(evaluation_image(places(crop + slack, crop + wide, false), transform).pixels.front(), left) << wide;
      transform.even_margin = false;  // as older checkpoints say
      ASSERT_EQ(evaluation_image(places(crop + slack, crop + wide, true), transform).pixels.front(), slack / 2);
    }
  }
  // What torchvision 0.20 gives.
  Transform transform{.channels = 1, .height = 8, .width = 8, .even_margin = true};
  const std::pair<int, int> tops[] = {{9, 0}, {10, 1}, {11, 2}, {12, 2}, {13, 2}, {15, 4}, {17, 4}, {19, 6}};
  for (const auto& [height, top] : tops)
    EXPECT_EQ(evaluation_image(places(height, 8, true), transform).pixels.front(), top) << height;
}

/// torchvision.transforms.functional._compute_resized_output_size: int(size * long / short), in double.
TEST(ResizeShorter, IsTorchvisions) {
  for (const int size : {32, 37, 232, 256}) {
    for (int low = 1; low < 400; low += 7) {
      for (int high = low; high < 3 * low; high += 1 + low / 5) {
        const int other = static_cast<int>(static_cast<double>(size) * high / low);
        EXPECT_NO_THROW(check_size({high, low}, {.height = other, .width = size, .resize = size}, false));
        EXPECT_NO_THROW(check_size({low, high}, {.height = size, .width = other, .resize = size}, false));
        EXPECT_THROW(check_size({high, low}, {.height = other + 1, .width = size, .resize = size}, false), Error);
        EXPECT_THROW(check_size({low, high}, {.height = size, .width = other + 1, .resize = size}, false), Error);
      }
    }
  }
}

using testing::data_refusal;
using testing::expect_part;
using testing::noise;

Transform crop_to(int height, int width, int channels = 1) {
  return {.channels = channels, .height = height, .width = width};
}

std::vector<uint8_t> train(const Image& image, const Transform& t, uint64_t key) {
  std::vector<uint8_t> out(static_cast<size_t>(t.height) * t.width * t.channels, 0xAA);
  Random random({key});
  training_pixels(image, t, random, out.data());
  return out;
}

/// The definition of padding and cropping: pixel (y, x) of the crop at (top, left) of the image, zero outside.
std::vector<uint8_t> crop_by_definition(const Image& image, int top, int left, const Transform& t) {
  std::vector<uint8_t> out;
  for (int y = top; y < top + t.height; ++y) {
    for (int x = left; x < left + t.width; ++x) {
      for (int c = 0; c < t.channels; ++c) {
        const bool inside = y >= 0 && x >= 0 && y < image.height && x < image.width;
        out.push_back(inside ? image.pixels[(y * image.width + x) * t.channels + c] : 0);
      }
    }
  }
  return out;
}

TEST(Crop, EveryPaddedPositionIsDrawnEquallyOften) {
  for (const int channels : {1, 3}) {
    const Image image = noise(6, 5, channels, 9);
    Transform t = crop_to(6, 5, channels);
    t.pad = 2;
    std::map<std::string, int> counts;
    const auto key = [](const std::vector<uint8_t>& pixels) { return std::string(pixels.begin(), pixels.end()); };
    for (int top = -2; top <= 2; ++top) {
      for (int left = -2; left <= 2; ++left) counts[key(crop_by_definition(image, top, left, t))] = 0;
    }
    ASSERT_EQ(counts.size(), 25u);
    constexpr int kDraws = 10000;
    for (int i = 0; i < kDraws; ++i) {
      const auto found = counts.find(key(train(image, t, i)));
      ASSERT_NE(found, counts.end());
      ++found->second;
    }
    // Binomial with p = 1/25: mean 400, deviation 19.6; five deviations.
    for (const auto& [pixels, count] : counts) EXPECT_NEAR(count, 400, 98);
  }
}

TEST(Flip, MirrorsHalfOfTheImages) {
  const Image image = noise(4, 5, 3, 3);
  std::vector<uint8_t> mirrored;
  for (int y = 0; y < 4; ++y) {
    for (int x = 4; x >= 0; --x) {
      for (int c = 0; c < 3; ++c) mirrored.push_back(image.pixels[(y * 5 + x) * 3 + c]);
    }
  }
  Transform t = crop_to(4, 5, 3);
  t.flip = true;
  int flipped = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto out = train(image, t, i);
    ASSERT_TRUE(out == image.pixels || out == mirrored);
    flipped += out == mirrored;
  }
  EXPECT_NEAR(flipped, 2000, 160);  // five deviations of 31.6
}

TEST(Cutout, FillsOneSquareCutOffAtTheBorders) {
  const Image image{16, 16, 3, std::vector<uint8_t>(16 * 16 * 3, 200)};
  Transform t = crop_to(16, 16, 3);
  t.cutout = 6;
  t.fill = {1, 2, 3};
  size_t whole = 0;
  std::vector<bool> reached(256);
  for (int i = 0; i < 2000; ++i) {
    const auto out = train(image, t, i);
    int top = 16, bottom = -1, left = 16, right = -1, count = 0;
    for (int p = 0; p < 256; ++p) {
      if (out[3 * p] == 200) continue;
      ASSERT_EQ((std::vector<uint8_t>{out[3 * p], out[3 * p + 1], out[3 * p + 2]}), t.fill);
      top = std::min(top, p / 16), bottom = std::max(bottom, p / 16);
      left = std::min(left, p % 16), right = std::max(right, p % 16);
      reached[p] = true;
      ++count;
    }
    ASSERT_EQ(count, (bottom - top + 1) * (right - left + 1));  // a full rectangle
    ASSERT_GE(count, 9);
    ASSERT_LE(count, 36);
    whole += count == 36;
  }
  // The centre is 3 .. 13 on both axes: (11/16)^2 of 2000 is 945, deviation 22.
  EXPECT_NEAR(static_cast<double>(whole), 945, 112);
  // The square lies over a corner in 9 of 256 draws, over any other pixel more often: none is missed 2000 times.
  for (int p = 0; p < 256; ++p) EXPECT_TRUE(reached[p]) << "row " << p / 16 << ", column " << p % 16;
}

TEST(RandomErasing, FillsRectanglesOfEverySizeThatIsAllowed) {
  constexpr int kHigh = 30, kWide = 40, kDraws = 3000;
  Transform t = crop_to(kHigh, kWide, 1);
  t.random_erasing = 0.25;
  t.fill = {77};
  const Image image{kHigh, kWide, 1, std::vector<uint8_t>(kHigh * kWide, 200)};
  int erased = 0;
  double least = 1, most = 0, flattest = 1, steepest = 1;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<uint8_t> out = train(image, t, i);
    const long filled = std::count(out.begin(), out.end(), 77);
    if (filled == 0) continue;
    ++erased;
    const auto first = std::find(out.begin(), out.end(), 77) - out.begin();
    const long width = std::find_if(out.begin() + first, out.begin() + (first / kWide + 1) * kWide,
                                    [](uint8_t v) { return v != 77; }) -
                       out.begin() - first;
    ASSERT_EQ(filled % width, 0);
    const double share = static_cast<double>(filled) / (kHigh * kWide),
                 aspect = static_cast<double>(filled / width) / width;
    least = std::min(least, share), most = std::max(most, share);
    flattest = std::min(flattest, aspect), steepest = std::max(steepest, aspect);
  }
  EXPECT_NEAR(erased, kDraws / 4, 100);
  EXPECT_GT(least, 0.015);
  EXPECT_LT(least, 0.03);
  EXPECT_GT(most, 0.3);
  EXPECT_LT(most, 0.36);
  EXPECT_GT(flattest, 0.22);
  EXPECT_LT(flattest, 0.4);
  EXPECT_GT(steepest, 2.5);
  EXPECT_LT(steepest, 4.1);
}

TEST(RandomPart, AreaAspectAndPlace) {
  const ImageSize image{100, 120};
  Random random({21});
  double area_sum = 0, log_aspect_sum = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const Rectangle part = random_part(image, 0.08, random);
    ASSERT_TRUE(part.top >= 0 && part.left >= 0 && part.top + part.height <= 100 && part.left + part.width <= 120);
    const double area = part.height * part.width / 12000.0, aspect = static_cast<double>(part.width) / part.height;
    ASSERT_GT(area, 0.07);
    ASSERT_LE(area, 1.0);
    ASSERT_GT(aspect, 0.70);
    ASSERT_LT(aspect, 1.43);
    area_sum += area;
    log_aspect_sum += std::log(aspect);
  }
  // Uniform 0.08 .. 1 has mean 0.54; parts that do not fit are drawn again, which takes the largest away.
  EXPECT_GT(area_sum / kDraws, 0.44);
  EXPECT_LT(area_sum / kDraws, 0.54);
  EXPECT_NEAR(log_aspect_sum / kDraws, 0, 0.05);
  const ImageSize ribbon{4, 4000};
  const Rectangle part = random_part(ribbon, 1.0, random);  // nothing fits: the middle
  EXPECT_EQ(part.height, 4);
  EXPECT_EQ(part.width, 5);
  EXPECT_EQ(part.left, (4000 - 5) / 2);
}

TEST(RandomPart, IsResizedToTheBatch) {
  Transform t = crop_to(8, 8, 3);
  t.random_resized_crop = true;
  const Image image = noise(30, 40, 3, 2);
  Random random({5});
  const Rectangle part = random_part({image.height, image.width}, t.crop_area_min, random);
  EXPECT_EQ(train(image, t, 5), resize(view(image, part), 8, 8).pixels);
}

TEST(Evaluation, ResizesTheShorterSideAndTakesTheCentre) {
  const Image image = noise(50, 80, 3, 8);
  Transform t = crop_to(20, 20, 3);
  t.resize = 25;
  t.flip = true;  // of no effect here
  t.pad = 3;
  const Image small = resize(view(image), 25, 40);
  EXPECT_EQ(evaluation_image(image, t).pixels, crop_by_definition(small, 2, 10, t));
  t.resize = 0;
  EXPECT_EQ(evaluation_image(image, t).pixels, crop_by_definition(image, 15, 30, t));
}

TEST(Transform, ImagesThatDoNotFitAreRefused) {
  const Transform t = crop_to(20, 20, 3);
  expect_part(data_refusal([&] { evaluation_image(noise(19, 40, 3, 1), t); }),
              "19x40 is smaller than the crop of 20x20");
  expect_part(data_refusal([&] { evaluation_image(noise(40, 40, 1, 1), t); }), "3 channels are wanted");
  Transform long_one = crop_to(20, 20, 3);
  long_one.resize = 100;
  expect_part(data_refusal([&] { evaluation_image(noise(1, 4000, 3, 1), long_one); }),
              "its shorter side resized to 100");
  EXPECT_THROW(evaluation_image(noise(40, 40, 3, 1), crop_to(0, 20, 3)), Error);
}

}  // namespace
}  // namespace octet
