// SPDX-License-Identifier: Apache-2.0
// Images that stay whole, and mosaics: boxes move as pixels do, and what is drawn fills its ranges.
#include "src/data/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "src/data/loader.h"
#include "tests/data/images.h"
#include "tests/data/painted_boxes.h"

namespace octet {
namespace {

testing::Colour mosaic_colour(int i) { return {static_cast<uint8_t>(250 - 10 * i), 200, 90}; }

/// Images of different sizes, on a ground that is no such colour.
testing::PaintedBoxes mosaic_boxes() {
  return {30, [](int i) -> testing::PaintedBoxes::Painting {
            return {{40 + 5 * i, 90 - 4 * i}, {6.0 + i, 8.0 + 2 * i, 14.0 + 2 * i, 20.0 - i}, mosaic_colour(i)};
          }};
}

/// Every pixel of a colour lies in a box of its class, and a box holds no other pixels; but for a pixel at its border.
TEST(Mosaic, BoxesMoveAsPixelsMove) {
  const testing::PaintedBoxes dataset = mosaic_boxes();
  Transform t{.height = 96,
              .width = 80,
              .fit = Fit::letterbox_corner,
              .flip = true,
              .scale = 0.5,
              .translate = 0.1,
              .mosaic = 1};
  std::vector<size_t> all(dataset.size());
  std::iota(all.begin(), all.end(), size_t{0});
  long boxes = 0, pixels = 0, outside = 0, most = 0, repeated = 0, mixed = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    Batch batch, again, plain;
    Loader(dataset, all, t, {.batch_size = 12, .train = true, .seed = 3, .epoch = epoch, .workers = 0}).next(batch);
    Loader(dataset, all, t, {.batch_size = 12, .train = true, .seed = 3, .epoch = epoch, .workers = 3}).next(again);
    ASSERT_EQ(batch.images, again.images);
    ASSERT_EQ(batch.labels, again.labels);
    ASSERT_EQ(batch.labels.size(), 12u * 4 * kBoxValues);
    for (int i = 0; i < 12; ++i) {
      const auto labels = testing::labels_of(batch, i);
      for (size_t g = 1; g < labels.size(); ++g) (labels[g - 1].first == labels[g].first ? repeated : mixed) += 1;
      boxes += static_cast<long>(labels.size());
      most = std::max(most, static_cast<long>(labels.size()));
      for (int y = 0; y < t.height; ++y)
        for (int x = 0; x < t.width; ++x) {
          const uint8_t* p = batch.images.data() + static_cast<size_t>((i * t.height + y) * t.width + x) * 3;
          for (const auto& [cls, box] : labels)
            if (testing::holds(box, x, y, -1.5))
              ASSERT_TRUE(std::equal(p, p + 3, mosaic_colour(cls).data())) << epoch << " " << i;
          for (int cls = 0; cls < 12; ++cls) {
            if (!std::equal(p, p + 3, mosaic_colour(cls).data())) continue;
            ++pixels;
            outside += std::none_of(labels.begin(), labels.end(), [&](const auto& label) {
              return label.first == cls && testing::holds(label.second, x, y, 0.6);
            });
          }
        }
    }
    Loader(dataset, all, t, {.batch_size = 12, .train = true, .join = false, .seed = 3, .epoch = epoch, .workers = 0})
        .next(plain);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(plain.labels[static_cast<size_t>(i * 4 + 1) * kBoxValues], kNoLabel);
  }
  EXPECT_EQ(most, 4);
  EXPECT_GT(boxes, 20 * 12 * 1.4);
  EXPECT_GT(pixels, 20 * 12 * 200);
  EXPECT_LT(outside, pixels / 100) << "boxes of which less than a tenth is left are dropped";
  EXPECT_GT(repeated, 0) << "an image may be there twice";
  EXPECT_GT(mixed, 10 * repeated / 2);
}

TEST(Mosaic, DrawsAllOfItsRangesAndCoversTheGround) {
  Transform t{.height = 100, .width = 200, .fit = Fit::letterbox};
  double left = 1e9, right = -1e9, top = 1e9, bottom = -1e9;
  for (uint64_t i = 0; i < 2000; ++i) {
    Random random({i});
    const auto all = draw_mosaic({{{100, 200}, {50, 50}, {10, 200}, {400, 100}}}, t, random);
    const int x = all[0].part.left + all[0].part.width, y = all[0].part.top + all[0].part.height;  // where they meet
    EXPECT_EQ(all[0].part.height, 100);
    EXPECT_EQ(all[1].part.height, 100);
    EXPECT_EQ(all[1].part.width, 100);
    EXPECT_EQ(all[2].part.height, 10);
    EXPECT_EQ(all[3].part.width, 25);
    EXPECT_EQ(all[1].part.left, x);
    EXPECT_EQ(all[1].part.top + all[1].part.height, y);
    EXPECT_EQ(all[2].part.left + all[2].part.width, x);
    EXPECT_EQ(all[2].part.top, y);
    EXPECT_EQ(all[3].part.left, x);
    EXPECT_EQ(all[3].part.top, y);
    long seen = 0;
    for (const Placed& placed : all) seen += 1L * placed.visible.height * placed.visible.width;
    EXPECT_EQ(seen, 100 * 200);
    t.flip = true;
    Random again({i});
    const auto flipped = draw_mosaic({{{100, 200}, {50, 50}, {10, 200}, {400, 100}}}, t, again);
    t.flip = false;
    for (size_t k = 0; k < all.size() && flipped[0].flip; ++k) {
      EXPECT_EQ(flipped[k].part.left, 200 - all[k].part.left - all[k].part.width);
      if (all[k].visible.width > 0)
        EXPECT_EQ(flipped[k].visible.left, 200 - all[k].visible.left - all[k].visible.width);
    }
    left = std::min(left, 1.0 * x), right = std::max(right, 1.0 * x);
    top = std::min(top, 1.0 * y), bottom = std::max(bottom, 1.0 * y);
  }
  EXPECT_NEAR(left, 100, 1);
  EXPECT_NEAR(right, 300, 1);
  EXPECT_NEAR(top, 50, 1);
  EXPECT_NEAR(bottom, 150, 1);
}

TEST(Place, TrainingWithoutChangesIsEvaluation) {
  const Image image = testing::noise(37, 53, 3, 4);
  for (const Fit fit : {Fit::letterbox_corner, Fit::letterbox, Fit::stretch}) {
    Transform t{.height = 40, .width = 64, .fit = fit, .order = ChannelOrder::bgr};
    std::vector<uint8_t> trained(40 * 64 * 3);
    Random random({1});
    training_pixels(image, t, random, trained.data());
    EXPECT_EQ(trained, evaluation_image(image, t).pixels);
  }
}

TEST(Place, DrawsAllOfItsRangesAndNothingBeyond) {
  Transform t{.height = 100, .width = 200, .fit = Fit::letterbox, .scale = 0.5, .translate = 0.2, .hsv = true};
  double least = 9, most = 0, left = 0, right = 0, up = 0, down = 0;
  int hue = 0, unchanged = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    Random random({i});
    const Placed placed = draw_placed({100, 100}, t, random);  // fits as 100x100 with its middle at (100, 50)
    EXPECT_EQ(placed.part.height, placed.part.width);
    EXPECT_FALSE(placed.flip);
    least = std::min(least, placed.part.height / 100.0), most = std::max(most, placed.part.height / 100.0);
    const double x = placed.part.left + placed.part.width / 2.0 - 100,
                 y = placed.part.top + placed.part.height / 2.0 - 50;
    left = std::min(left, x), right = std::max(right, x), up = std::min(up, y), down = std::max(down, y);
    hue = std::max(hue, std::abs(placed.colours.hue));
    unchanged += placed.colours.hue == 0;
  }
  EXPECT_NEAR(least, 0.5, 0.01);
  EXPECT_NEAR(most, 1.5, 0.01);
  EXPECT_NEAR(left, -40, 1.5);
  EXPECT_NEAR(right, 40, 1.5);
  EXPECT_NEAR(up, -20, 1.5);
  EXPECT_NEAR(down, 20, 1.5);
  EXPECT_EQ(hue, 10);
  EXPECT_NEAR(unchanged, 1000 + 1000 / 21, 100);
}

TEST(Place, ColoursChangeInHueSaturationAndValue) {
  const auto changed = [](std::vector<uint8_t> rgb, const kernels::ColourChange& by) {
    Image image{1, 1, 3, std::move(rgb)};
    change_colours(image, by);
    return image.pixels;
  };
  using Pixel = std::vector<uint8_t>;
  const Pixel red{255, 0, 0};
  EXPECT_EQ(changed(red, {.hue = 60}), (Pixel{255, 255, 0}));
  EXPECT_EQ(changed(red, {.hue = 120}), (Pixel{0, 255, 0}));
  EXPECT_EQ(changed(red, {.hue = -60}), (Pixel{255, 0, 255}));
  EXPECT_EQ(changed(red, {.hue = 12}), (Pixel{255, 51, 0}));
  EXPECT_EQ(changed(red, {.saturation = -51}), (Pixel{255, 51, 51}));
  EXPECT_EQ(changed(red, {.value = -55}), (Pixel{200, 0, 0}));
  EXPECT_EQ(changed({10, 20, 30}, {.value = -40}), (Pixel{0, 0, 0}));
  EXPECT_EQ(changed({77, 77, 77}, {.hue = 8, .saturation = 30, .value = 3}), (Pixel{80, 80, 80}));  // grey stays grey
  for (int i = 0; i < 200; ++i) {                                                                   // there and back
    const Image image = testing::noise(1, 1, 3, static_cast<uint64_t>(i));
    const Pixel there = changed(image.pixels, {.hue = 120});
    EXPECT_EQ(changed(there, {.hue = -120}), image.pixels);
    EXPECT_EQ(there, (Pixel{image.pixels[2], image.pixels[0], image.pixels[1]}));
  }
}

}  // namespace
}  // namespace octet
