// SPDX-License-Identifier: Apache-2.0
// Colours that change at random: each change against its definition in double, and what is drawn.
#include "src/data/colours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "tests/data/images.h"

namespace octet {
namespace {

constexpr int kRows = 7, kColumns = 9;

struct Painted {
  explicit Painted(int channels, uint64_t seed = 5) : image(testing::noise(kRows, kColumns, channels, seed)) {}
  Pixels pixels() { return {image.pixels.data(), kRows, kColumns, image.channels}; }
  Image image;
};

double light(const uint8_t* p, int channels) {
  return channels == 1 ? p[0] : 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
}

/// Expects factor * before + (1 - factor) * rest(pixel), within what rounding to a code leaves.
template <class Rest>
void expect_blend(const Image& before, const Image& after, double factor, const Rest& rest) {
  for (size_t i = 0; i < before.pixels.size(); ++i) {
    const uint8_t* pixel = &before.pixels[i - i % before.channels];
    const double wanted = std::clamp(factor * before.pixels[i] + (1 - factor) * rest(pixel), 0.0, 255.0);
    ASSERT_NEAR(after.pixels[i], wanted, 0.501) << factor << " " << i;
  }
}

TEST(Colours, ChangeAsTheyAreDefined) {
  for (const int channels : {1, 3}) {
    const Painted before(channels);
    double mean = 0;
    for (size_t i = 0; i < before.image.pixels.size(); i += channels)
      mean += light(&before.image.pixels[i], channels) / (kRows * kColumns);
    for (const float factor : {0.0f, 0.3f, 1.0f, 1.7f}) {
      Painted brighter(channels), sharper(channels), richer(channels);
      change_brightness(brighter.pixels(), factor);
      expect_blend(before.image, brighter.image, factor, [](const uint8_t*) { return 0.0; });
      change_contrast(sharper.pixels(), factor);
      expect_blend(before.image, sharper.image, factor, [&](const uint8_t*) { return mean; });
      change_saturation(richer.pixels(), factor);
      if (channels == 3)
        expect_blend(before.image, richer.image, factor, [](const uint8_t* p) { return light(p, 3); });
      else
        EXPECT_EQ(richer.image.pixels, before.image.pixels);
    }
  }
}

TEST(Colours, HueTurnsAroundTheCircle) {
  std::array<uint8_t, 6> two = {200, 50, 50, 90, 90, 90};  // a red, and a grey, which has no hue
  turn_hue({two.data(), 1, 2, 3}, 1.0f / 3);
  EXPECT_EQ(two, (std::array<uint8_t, 6>{50, 200, 50, 90, 90, 90}));
  turn_hue({two.data(), 1, 2, 3}, -0.5f);
  EXPECT_EQ(two, (std::array<uint8_t, 6>{200, 50, 200, 90, 90, 90}));
  turn_hue({two.data(), 1, 2, 3}, 0.5f);
  EXPECT_EQ(two, (std::array<uint8_t, 6>{50, 200, 50, 90, 90, 90}));
  Painted image(3);
  const Painted before(3);
  turn_hue(image.pixels(), 0.25f);
  turn_hue(image.pixels(), -0.25f);
  for (size_t i = 0; i < before.image.pixels.size(); ++i)
    EXPECT_LE(std::abs(image.image.pixels[i] - before.image.pixels[i]), 2);
}

/// A grey pixel of 100 in an image of 100 shows the factor of the brightness; all of its range is drawn.
TEST(Colours, JitterDrawsItsRangesInEveryOrder) {
  double least = 1, most = 1;
  for (uint64_t i = 0; i < 500; ++i) {
    std::array<uint8_t, 3> grey = {100, 100, 100};
    Random random({i});
    jitter_colours({grey.data(), 1, 1, 3}, {.brightness = 0.4}, random);
    least = std::min(least, grey[0] / 100.0), most = std::max(most, grey[0] / 100.0);
  }
  EXPECT_NEAR(least, 0.6, 0.02);
  EXPECT_NEAR(most, 1.4, 0.02);
  // Brightness that clips before or behind a contrast that brings it back: both orders are seen.
  int first = 0, second = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    std::array<uint8_t, 6> two = {250, 250, 250, 10, 10, 10};
    Random random({i}), again({i});
    std::vector<int> order = {0, 1, 2, 3};
    again.shuffle(order);
    const bool brightness_first = std::find(order.begin(), order.end(), 0) < std::find(order.begin(), order.end(), 1);
    jitter_colours({two.data(), 1, 2, 3}, {.brightness = 0.5, .contrast = 0.5}, random);
    const double one = again.uniform(0.5, 1.5), other = again.uniform(0.5, 1.5);
    std::array<double, 2> wanted = {250, 10};
    const auto round = [](double v) { return std::floor(std::clamp(v, 0.0, 255.0) + 0.5); };
    const auto brighten = [&](double by) {
      for (double& v : wanted) v = round(by * v);
    };
    if (brightness_first) brighten(one);
    const double mean = (wanted[0] + wanted[1]) / 2, by = brightness_first ? other : one;
    for (double& v : wanted) v = round(by * v + (1 - by) * mean);
    if (!brightness_first) brighten(other);
    EXPECT_NEAR(two[0], wanted[0], 1);
    EXPECT_NEAR(two[3], wanted[1], 1);
    (brightness_first ? first : second)++;
  }
  EXPECT_GT(first, 70);
  EXPECT_GT(second, 70);
}

}  // namespace
}  // namespace octet
