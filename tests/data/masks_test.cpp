// SPDX-License-Identifier: Apache-2.0
// Classes of pixels: the scenes that have them, and masks on their way into a batch.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>

#include "src/data/loader.h"
#include "tests/data/images.h"
#include "tests/error_of.h"

namespace octet {
namespace {

DatasetSpec scenes(int classes = 2, int channels = 3) {
  return {.format = "synthetic",
          .split = "train",
          .channels = channels,
          .image_size = 32,
          .synthetic_size = 400,
          .synthetic_classes = classes,
          .labels = Labels::pixels,
          .seed = 5};
}

TEST(SyntheticScenes, EveryClassIsThereAndNoPixelTellsItsOwn) {
  for (const int classes : {2, 4}) {
    const auto dataset = open_dataset(scenes(classes));
    ASSERT_EQ(dataset->labels(), Labels::pixels);
    ASSERT_EQ(dataset->class_names().size(), static_cast<size_t>(classes));
    std::vector<long> pixels(classes);
    std::vector<double> brightness(classes);
    for (size_t i = 0; i < dataset->size(); ++i) {
      const Image image = dataset->read(i), mask = dataset->mask(i);
      ASSERT_EQ(mask.pixels.size() * 3, image.pixels.size());
      for (size_t p = 0; p < mask.pixels.size(); ++p) {
        ASSERT_LT(mask.pixels[p], classes);
        ++pixels[mask.pixels[p]];
        brightness[mask.pixels[p]] += image.pixels[3 * p];
      }
    }
    const double all = std::accumulate(pixels.begin(), pixels.end(), 0.0);
    for (int c = 0; c < classes; ++c) {
      EXPECT_GT(pixels[c], 0.02 * all) << c;
      // Images' and shapes' own means are drawn alike, with a spread of 30: over hundreds of them a difference of 3.
      EXPECT_NEAR(brightness[c] / pixels[c], brightness[0] / pixels[0], 10) << c;
    }
  }
}

TEST(SyntheticScenes, TheSameEveryTimeAndOthersInEverySplit) {
  const auto a = open_dataset(scenes()), b = open_dataset(scenes());
  EXPECT_EQ(a->read(7).pixels, b->read(7).pixels);
  EXPECT_EQ(a->mask(7).pixels, b->mask(7).pixels);
  EXPECT_NE(a->mask(7).pixels, a->mask(8).pixels);
  DatasetSpec test = scenes();
  test.split = "test";
  EXPECT_NE(open_dataset(test)->mask(7).pixels, a->mask(7).pixels);
  // With 4 classes the same shapes have classes of their own.
  const Image four = open_dataset(scenes(4))->mask(7);
  for (size_t p = 0; p < four.pixels.size(); ++p) EXPECT_EQ(four.pixels[p] > 0, a->mask(7).pixels[p] == 1);
}

/// Images whose pixels say what their label is: 100 + class.
class Telling : public Dataset {
 public:
  size_t size() const override { return 40; }
  int channels() const override { return 1; }
  Labels labels() const override { return Labels::pixels; }
  int label(size_t) const override { return 0; }
  Image read(size_t index) const override {
    Image image = mask(index);
    for (uint8_t& pixel : image.pixels) pixel = pixel == kUnlabelled ? 99 : static_cast<uint8_t>(100 + pixel);
    return image;
  }
  Image mask(size_t index) const override {
    Image image{9, 7, 1, {}};
    for (int i = 0; i < 63; ++i) image.pixels.push_back(static_cast<uint8_t>((i * i + static_cast<int>(index)) % 5));
    image.pixels[31] = kUnlabelled;
    return image;
  }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t) const override { return "telling"; }

 private:
  std::vector<std::string> names_{"a", "b", "c", "d", "e"};
};

/// What padding (0), cutout (50) and the mask (99) hide has no label; every other pixel kept its own.
void expect_labels_of_pixels(const Batch& batch) {
  ASSERT_EQ(batch.labels.size(), batch.images.size());
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const int pixel = batch.images[i];
    ASSERT_EQ(batch.labels[i], pixel < 100 ? kNoLabel : pixel - 100) << i;
  }
}

TEST(Masks, GoWhereTheirImagesGo) {
  const Telling dataset;
  std::vector<size_t> all(dataset.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Transform t{.channels = 1, .height = 8, .width = 6, .pad = 2, .flip = true, .cutout = 3, .fill = {50}};
  for (const bool train : {true, false}) {
    for (const int workers : {0, 2}) {
      std::set<int> hidden;
      Loader loader(dataset, all, t, {.batch_size = 10, .train = train, .seed = 3, .workers = workers});
      for (Batch batch; loader.next(batch);) {
        expect_labels_of_pixels(batch);
        for (const uint8_t pixel : batch.images)
          if (pixel < 100) hidden.insert(pixel);
      }
      EXPECT_EQ(hidden, (train ? std::set<int>{0, 50, 99} : std::set<int>{99}));
    }
  }
}

/// Large fields, so that most pixels of a resized image still say what their label is: 100 + class, 99 without one.
class Fields : public Telling {
 public:
  Image mask(size_t index) const override {
    Image image{45, 60, 1, {}};
    for (int y = 0; y < 45; ++y)
      for (int x = 0; x < 60; ++x) {
        const bool unlabelled = y >= 18 && y < 27 && x >= 30;
        image.pixels.push_back(
            unlabelled ? kUnlabelled : static_cast<uint8_t>(y / 15 + (x < 5 + 6 * static_cast<int>(index) ? 0 : 2)));
      }
    return image;
  }
};

TEST(Masks, AreResizedAsTheirImagesAre) {
  const Fields dataset;
  Transform crop, part, placed, mosaic, turned;
  for (Transform* t : {&crop, &part, &placed, &mosaic, &turned}) {
    t->channels = 1;
    t->height = 64;
    t->width = 52;
    t->flip = true;
  }
  crop.resize = 70;
  part.random_resized_crop = true;
  placed.fit = Fit::letterbox;
  placed.scale = 0.5;
  placed.translate = 0.2;
  mosaic.fit = Fit::stretch;
  mosaic.mosaic = 1;
  mosaic.scale = 0.5;
  turned.fit = Fit::stretch;
  turned.mosaic = 0.5;
  turned.degrees = 30;
  turned.shear = 10;
  for (const Transform& t : {crop, part, placed, mosaic, turned})
    for (const bool train : {true, false}) {
      if (!train && t.random_resized_crop) continue;  // an image of 45 rows is too small then
      std::set<int64_t> seen;
      long same = 0, grey = 0, all = 0;
      Loader loader(dataset, {0, 1, 2, 3, 4, 5, 6, 7}, t, {.batch_size = 8, .train = train, .seed = 3, .workers = 0});
      Batch batch;
      ASSERT_TRUE(loader.next(batch));
      for (size_t i = 0; i < batch.labels.size(); ++i) {
        const int pixel = batch.images[i];
        const int64_t label = batch.labels[i];
        seen.insert(label);
        ++all;
        same += pixel == (label == kNoLabel ? 99 : 100 + label);
        grey += pixel == kLetterboxGrey;
        if (pixel == kLetterboxGrey) ASSERT_EQ(label, kNoLabel) << i;
      }
      EXPECT_EQ(seen, (std::set<int64_t>{kNoLabel, 0, 1, 2, 3, 4}));
      EXPECT_GT(same, (t.turns() ? 0.93 : 0.95) * static_cast<double>(all - grey));
      EXPECT_EQ(grey > 0, t.fit == Fit::letterbox || (train && t.mosaic > 0));
    }
}

/// The centre of pixel 1 of 2 lies at 4.5 of 6 pixels, that of pixel 4 of 6 (from 0) at 1.5 of 2.
TEST(ResizeNearest, TakesThePixelAroundTheCentre) {
  const Image row{1, 6, 1, {10, 11, 12, 13, 14, 15}}, pair{1, 2, 1, {7, 9}};
  EXPECT_EQ(resize_nearest(view(row), 1, 2).pixels, (std::vector<uint8_t>{11, 14}));
  EXPECT_EQ(resize_nearest(view(row), 1, 4).pixels, (std::vector<uint8_t>{10, 12, 13, 15}));
  EXPECT_EQ(resize_nearest(view(pair), 2, 5).pixels, (std::vector<uint8_t>{7, 7, 9, 9, 9, 7, 7, 9, 9, 9}));
}

TEST(Masks, OnlySomeDataSetsHaveThem) {
  DatasetSpec spec = scenes();
  spec.format = "cifar10";
  EXPECT_NE(error_of([&] { open_dataset(spec); }).find("data.labels: pixels, but cifar10"), std::string::npos);
  EXPECT_NE(error_of([] { open_dataset(scenes(10)); }).find("data.synthetic_classes: 10"), std::string::npos);
  spec = scenes();
  spec.labels = Labels::image;
  const auto classified = open_dataset(spec);
  EXPECT_NE(error_of([&] { classified->mask(0); }).find("none for its pixels"), std::string::npos);
  const auto dataset = open_dataset(scenes());
  EXPECT_NE(error_of([&] { dataset->label(0); }).find("the image has none"), std::string::npos);
}

TEST(Png, ComesBackPixelByPixel) {
  for (const int channels : {1, 3}) {
    const Image image = testing::noise(5, 9, channels, 4);
    const std::string file = encode_png(image);
    const Image back = decode_image(file, channels, "memory");
    EXPECT_EQ(back.height, 5);
    EXPECT_EQ(back.width, 9);
    EXPECT_EQ(back.pixels, image.pixels);
  }
}

}  // namespace
}  // namespace octet
