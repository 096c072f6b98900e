// SPDX-License-Identifier: Apache-2.0
// Images that are rotated, sheared and mixed: painted boxes are found again where the labels say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/data/labels.h"
#include "src/data/loader.h"
#include "src/data/place.h"
#include "tests/data/painted_boxes.h"

namespace octet {
namespace {

using testing::holds;
using testing::labels_of;

constexpr uint8_t kGround = 20;

/// Colours whose levels lie far from those of the ground and of grey.
testing::Colour turned_colour(int i) {
  return {static_cast<uint8_t>(i % 2 == 0 ? 250 : 190), static_cast<uint8_t>(i / 2 % 3 * 60 + 20),
          static_cast<uint8_t>(i / 6 == 0 ? 20 : 200)};
}

testing::PaintedBoxes turned_boxes() {
  return {kGround, [](int i) -> testing::PaintedBoxes::Painting {
            return {{60 + 3 * i, 90 - 2 * i}, {20.0 + i, 18.0 + i, 24.0 + i, 30.0 - i}, turned_colour(i)};
          }};
}

Transform turning() {
  return {.height = 96,
          .width = 112,
          .fit = Fit::letterbox,
          .flip = true,
          .scale = 0.4,
          .translate = 0.2,
          .degrees = 40,
          .shear = 15};
}

std::vector<size_t> all_of(const Dataset& dataset) {
  std::vector<size_t> all(dataset.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

/// Returns twelve images of an epoch as training sees them.
Batch training_batch(const Dataset& dataset, const Transform& t, int epoch, int workers = 0) {
  Batch batch;
  Loader(dataset, all_of(dataset), t, {.batch_size = 12, .train = true, .seed = 3, .epoch = epoch, .workers = workers})
      .next(batch);
  return batch;
}

/// The box around the pixels, and how many there are.
struct Found {
  Box box;
  long pixels = 0;
};

template <class Is>
Found pixels_where(const Transform& t, const Is& is) {
  int left = t.width, right = 0, top = t.height, bottom = 0;
  Found found;
  for (int y = 0; y < t.height; ++y)
    for (int x = 0; x < t.width; ++x) {
      if (!is((y * t.width + x) * 3)) continue;
      ++found.pixels;
      left = std::min(left, x), right = std::max(right, x + 1);
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
    }
  if (found.pixels > 0) found.box = {1.0 * left, 1.0 * top, 1.0 * (right - left), 1.0 * (bottom - top)};
  return found;
}

/// A turned box may end a few pixels early: the last pixels of a sharp corner show little of it.
void expect_turned(const Box& found, const Box& label, const std::string& where) {
  constexpr double kOutside = 1, kMissing = 4;
  EXPECT_GT(found.x, label.x - kOutside) << where;
  EXPECT_LT(found.x, label.x + kMissing) << where;
  EXPECT_GT(found.y, label.y - kOutside) << where;
  EXPECT_LT(found.y, label.y + kMissing) << where;
  EXPECT_LT(found.x + found.width, label.x + label.width + kOutside) << where;
  EXPECT_GT(found.x + found.width, label.x + label.width - kMissing) << where;
  EXPECT_LT(found.y + found.height, label.y + label.height + kOutside) << where;
  EXPECT_GT(found.y + found.height, label.y + label.height - kMissing) << where;
}

void expect_near(const Box& a, const Box& b, double most, const std::string& where) {
  EXPECT_NEAR(a.x, b.x, most) << where;
  EXPECT_NEAR(a.y, b.y, most) << where;
  EXPECT_NEAR(a.x + a.width, b.x + b.width, most) << where;
  EXPECT_NEAR(a.y + a.height, b.y + b.height, most) << where;
}

TEST(Turn, IsUndoneByItsInverse) {
  for (uint64_t i = 0; i < 50; ++i) {
    Random random({i});
    const Turn turn = draw_turn(180, 30, {3, -7}, random), back = turn.inverse();
    const Point there = turn({20, 31}), again = back(there), middle = turn({3, -7});
    EXPECT_NEAR(again.x, 20, 1e-9);
    EXPECT_NEAR(again.y, 31, 1e-9);
    EXPECT_NEAR(middle.x, 3, 1e-12);
    EXPECT_NEAR(middle.y, -7, 1e-12);
    EXPECT_NEAR(area(turned({5, 6, 7, 8}, turn)), 56 * turn.area(), 1e-9);
    EXPECT_GT(turn.area(), 0.6);
  }
}

TEST(Turn, DrawsAllAnglesThatAreAllowedAndNoOther) {
  double least = 0, most = 0, sheared = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    Random random({i}), again({i});
    const Turn rotated = draw_turn(25, 0, {}, random), both = draw_turn(0, 20, {}, again);
    EXPECT_NEAR(rotated.area(), 1, 1e-12);
    const double angle = std::atan2(rotated.yx, rotated.xx) * 180 / std::acos(-1.0);
    least = std::min(least, angle), most = std::max(most, angle);
    EXPECT_EQ(both.xx, 1);
    sheared = std::max(sheared, std::atan(both.xy) * 180 / std::acos(-1.0));
  }
  EXPECT_NEAR(least, -25, 0.1);
  EXPECT_NEAR(most, 25, 0.1);
  EXPECT_NEAR(sheared, 20, 0.1);
}

TEST(Turn, PolygonsAreCutAtTheBorder) {
  const Turn eighth{std::sqrt(0.5), -std::sqrt(0.5), std::sqrt(0.5), std::sqrt(0.5), {5, 5}};
  const Polygon diamond = turned({0, 0, 10, 10}, eighth), left = cut_to(diamond, 10, 10);
  EXPECT_NEAR(around(diamond).width, 10 * std::sqrt(2.0), 1e-9);
  EXPECT_EQ(left.size(), 8u);
  EXPECT_NEAR(around(left).width, 10, 1e-9);
  const double tip = 5 * std::sqrt(2.0) - 5;  // that sticks out on each of four sides, a triangle of that height
  EXPECT_NEAR(area(left), 100 - 4 * tip * tip, 1e-9);
  EXPECT_TRUE(cut_to(turned({20, 20, 4, 4}, eighth), 10, 10).empty());
  EXPECT_EQ(around({}).area(), 0);
}

/// Boxes hold the pixels of their colour, and end where these end.
TEST(Turn, BoxesMoveAsPixelsMove) {
  const testing::PaintedBoxes dataset = turned_boxes();
  long seen = 0, cut = 0, dropped = 0;
  for (const Fit fit : {Fit::letterbox_corner, Fit::letterbox, Fit::stretch})
    for (int epoch = 0; epoch < 12; ++epoch) {
      Transform t = turning();
      t.fit = fit;
      t.translate = 0.5;
      const Batch batch = training_batch(dataset, t, epoch);
      for (int i = 0; i < 12; ++i) {
        const uint8_t* pixels = batch.images.data() + static_cast<size_t>(i) * t.height * t.width * 3;
        const Found found = pixels_where(t, [&](int p) { return pixels[p] > 150; });  // red: more than grey
        const auto labels = labels_of(batch, i);
        if (labels.empty()) {
          EXPECT_LT(found.pixels, 0.1 * 40 * 30 * 1.4 * 1.4 * 1.2);
          ++dropped;
          continue;
        }
        ASSERT_EQ(labels.size(), 1u);
        EXPECT_EQ(labels[0].first, static_cast<int>(batch.indices[static_cast<size_t>(i)]));
        ++seen;
        cut += labels[0].second.x == 0 || labels[0].second.y == 0;
        expect_turned(found.box, labels[0].second, fmt::format("epoch {} image {}", epoch, i));
      }
    }
  EXPECT_GT(seen, 300);
  EXPECT_GT(cut, 10);
  EXPECT_GT(dropped, 0);
}

/// A random part of each image fills the input: its box is found where the labels say, at every scale and aspect.
TEST(RandomResizedCrop, BoxesMoveAsPixelsMove) {
  const testing::PaintedBoxes dataset = turned_boxes();
  long seen = 0;
  double widest = 0, narrowest = 1000;
  for (int epoch = 0; epoch < 30; ++epoch) {
    Transform t{.height = 96,
                .width = 112,
                .fit = Fit::letterbox_corner,
                .random_resized_crop = true,
                .crop_area_min = 0.2,
                .flip = true};
    const Batch batch = training_batch(dataset, t, epoch);
    for (int i = 0; i < 12; ++i) {
      const uint8_t* pixels = batch.images.data() + static_cast<size_t>(i) * t.height * t.width * 3;
      EXPECT_EQ(
          pixels_where(t, [&](int p) { return pixels[p + 1] == kLetterboxGrey && pixels[p] == kLetterboxGrey; }).pixels,
          0);
      const Found found = pixels_where(t, [&](int p) { return pixels[p] > 105; });  // half of the box's red
      const auto labels = labels_of(batch, i);
      if (labels.empty()) continue;
      ++seen;
      widest = std::max(widest, labels[0].second.width), narrowest = std::min(narrowest, labels[0].second.width);
      expect_near(found.box, labels[0].second, 2.5, fmt::format("epoch {} image {}", epoch, i));
    }
  }
  EXPECT_GT(seen, 250);
  EXPECT_GT(widest, 100);
  EXPECT_LT(narrowest, 40);
}

TEST(Turn, TurnsWholeMosaics) {
  const testing::PaintedBoxes dataset = turned_boxes();
  Transform t = turning();
  t.mosaic = 1;
  t.degrees = 15;
  t.shear = 5;
  long pixels = 0, outside = 0, boxes = 0, tight = 0;
  for (int epoch = 0; epoch < 12; ++epoch) {
    const Batch batch = training_batch(dataset, t, epoch), again = training_batch(dataset, t, epoch, 3);
    ASSERT_EQ(batch.images, again.images);
    ASSERT_EQ(batch.labels, again.labels);
    for (int i = 0; i < 12; ++i) {
      const uint8_t* image = batch.images.data() + static_cast<size_t>(i) * t.height * t.width * 3;
      const auto labels = labels_of(batch, i);
      boxes += static_cast<long>(labels.size());
      for (const auto& [cls, box] : labels) {
        const testing::Colour wanted = turned_colour(cls);
        const Found found = pixels_where(t, [&, box = box](int p) {
          return std::equal(image + p, image + p + 3, wanted.data()) && holds(box, p / 3 % t.width, p / 3 / t.width, 1);
        });
        tight += std::abs(found.box.width - box.width) < 4 && std::abs(found.box.height - box.height) < 4;
      }
      for (int p = 0; p < t.height * t.width * 3; p += 3)
        for (int cls = 0; cls < 12; ++cls) {
          if (!std::equal(image + p, image + p + 3, turned_colour(cls).data())) continue;
          ++pixels;
          outside += std::none_of(labels.begin(), labels.end(), [&](const auto& label) {
            return label.first == cls && holds(label.second, p / 3 % t.width, p / 3 / t.width, 0.6);
          });
        }
    }
  }
  EXPECT_GT(boxes, 150);
  EXPECT_GT(static_cast<double>(tight), 0.9 * static_cast<double>(boxes));
  EXPECT_GT(pixels, 12 * 12 * 300);
  EXPECT_LT(outside, pixels / 100) << "boxes of which less than a tenth is left are dropped";
}

/// What is left of a mixed image without its first half is an image whose box is the second label.
TEST(Mixup, IsTheMeanOfTwoWithTheBoxesOfBoth) {
  const testing::PaintedBoxes dataset = turned_boxes();
  for (const double share : {1.0, 0.4}) {
    Transform t = turning();
    t.mixup = share;
    long mixed = 0, checked = 0;
    for (int epoch = 0; epoch < 10; ++epoch) {
      const LoaderOptions options{.batch_size = 12, .train = true, .seed = 5, .epoch = epoch, .workers = 0};
      LoaderOptions apart = options, more = options;
      apart.join = false;
      more.workers = 3;
      Batch batch, plain, again;
      Loader(dataset, all_of(dataset), t, options).next(batch);
      Loader(dataset, all_of(dataset), t, apart).next(plain);
      Loader(dataset, all_of(dataset), t, more).next(again);
      ASSERT_EQ(batch.images, again.images);
      ASSERT_EQ(batch.labels, again.labels);
      ASSERT_EQ(batch.labels.size(), 12u * 2 * kBoxValues);
      for (int i = 0; i < 12; ++i) {
        const size_t begin = static_cast<size_t>(i) * t.height * t.width * 3;
        const uint8_t *both = batch.images.data() + begin, *first = plain.images.data() + begin;
        auto labels = labels_of(batch, i);
        const auto alone = labels_of(plain, i);
        if (std::equal(both, both + t.height * t.width * 3, first)) {
          EXPECT_EQ(labels, alone);
          continue;
        }
        ++mixed;
        ASSERT_TRUE(labels.size() >= alone.size() && std::equal(alone.begin(), alone.end(), labels.begin()));
        labels.erase(labels.begin(), labels.begin() + static_cast<long>(alone.size()));
        const Found found = pixels_where(t, [&](int p) { return 2 * both[p] - first[p] > 150; });
        if (labels.empty()) continue;
        ASSERT_EQ(labels.size(), 1u);
        expect_turned(found.box, labels[0].second, fmt::format("epoch {} image {}", epoch, i));
        ++checked;
      }
    }
    EXPECT_NEAR(static_cast<double>(mixed), share * 120, share < 1 ? 20 : 0);
    EXPECT_GT(checked, 0.8 * static_cast<double>(mixed));
  }
}

TEST(MultiScale, SizesAreStepsAroundTheInputs) {
  using Sizes = std::vector<ImageSize>;
  Transform t;
  const auto sizes = [&](int height, int width, double multi_scale) {
    t.height = height, t.width = width, t.multi_scale = multi_scale;
    return input_sizes(t);
  };
  EXPECT_EQ(sizes(416, 416, 0), (Sizes{{416, 416}}));
  EXPECT_EQ(sizes(128, 128, 0.25), (Sizes{{96, 96}, {128, 128}, {160, 160}}));
  EXPECT_EQ(sizes(416, 416, 0.25).front(), (ImageSize{320, 320}));
  EXPECT_EQ(sizes(416, 416, 0.25).back(), (ImageSize{512, 512}));
  EXPECT_EQ(sizes(416, 416, 0.25).size(), 7u);
  EXPECT_EQ(sizes(368, 480, 0.05), (Sizes{{352, 464}, {368, 480}, {384, 496}}));  // steps of 16
  EXPECT_EQ(sizes(96, 80, 0.9).front(), (ImageSize{16, 16}));
}

/// Batches differ in size, images of one do not; boxes are those of the size. Every share of a batch has its size.
TEST(MultiScale, BoxesMoveAsPixelsMoveInBatchesOfAllSizes) {
  const testing::PaintedBoxes dataset = turned_boxes();
  Transform t{.height = 96, .width = 96, .fit = Fit::letterbox_corner, .flip = true, .multi_scale = 0.4};
  std::set<int> seen;
  for (int epoch = 0; epoch < 12; ++epoch) {
    const LoaderOptions options{.batch_size = 4, .train = true, .seed = 3, .epoch = epoch, .workers = 0};
    LoaderOptions more = options, left = options, right = options;
    more.workers = 3;
    left.shares = right.shares = 2;
    left.batch_size = right.batch_size = 2;
    right.share = 1;
    Loader loader(dataset, all_of(dataset), t, options), again(dataset, all_of(dataset), t, more),
        first(dataset, all_of(dataset), t, left), second(dataset, all_of(dataset), t, right);
    Batch other, one, two;
    for (Batch batch; loader.next(batch);) {
      ASSERT_TRUE(again.next(other) && first.next(one) && second.next(two));
      EXPECT_EQ(batch.images, other.images);
      EXPECT_EQ(batch.labels, other.labels);
      EXPECT_TRUE(one.input == batch.input && two.input == batch.input);
      EXPECT_TRUE(std::equal(two.images.begin(), two.images.end(),
                             batch.images.begin() + static_cast<long>(one.images.size())));
      seen.insert(batch.input.height);
      Transform own = t;
      own.height = batch.input.height, own.width = batch.input.width;
      ASSERT_EQ(batch.images.size(), 4u * 3 * own.height * own.width);
      for (int i = 0; i < 4; ++i) {
        const uint8_t* pixels = batch.images.data() + static_cast<size_t>(i) * own.height * own.width * 3;
        const auto labels = labels_of(batch, i);
        ASSERT_EQ(labels.size(), 1u);
        expect_near(pixels_where(own, [&](int p) { return pixels[p] > 130; }).box, labels[0].second, 1.01,
                    fmt::format("{} of {}", i, own.height));
      }
    }
    Loader evaluation(dataset, all_of(dataset), t, {.batch_size = 4, .workers = 0});
    for (Batch batch; evaluation.next(batch);) EXPECT_EQ(batch.input, (ImageSize{96, 96}));
  }
  EXPECT_EQ(seen, (std::set<int>{64, 96, 128}));
}

}  // namespace
}  // namespace octet
