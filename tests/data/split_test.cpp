// SPDX-License-Identifier: Apache-2.0
// Index lists of a run, and the synthetic images.
#include "src/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/random.h"
#include "tests/data/images.h"

namespace octet {
namespace {

bool contains(const std::vector<size_t>& all, const std::vector<size_t>& part) {
  return std::includes(all.begin(), all.end(), part.begin(), part.end());
}

TEST(Split, CalibrationComesFromTraining) {
  SplitOptions options;
  options.train_images = 1000;
  options.validation_images = 300;
  options.test_images = 200;
  options.limit_train = 400;
  options.limit_validation = 50;
  options.limit_test = 20;
  options.calibration_images = 64;
  options.seed = 5;
  const Split split = split_indices(options);
  EXPECT_EQ(split.train.size(), 400u);
  EXPECT_EQ(split.validation.size(), 50u);
  EXPECT_EQ(split.calibration.size(), 64u);
  EXPECT_EQ(split.test.size(), 20u);
  EXPECT_LT(split.test.back(), 200u);
  EXPECT_TRUE(contains(split.train, split.calibration));
  EXPECT_LT(split.train.back(), 1000u);
  EXPECT_LT(split.validation.back(), 300u);
  EXPECT_EQ(split_indices(options).calibration, split.calibration);
  options.limit_validation = 10;  // moves no other list
  EXPECT_EQ(split_indices(options).train, split.train);
  EXPECT_EQ(split_indices(options).test, split.test);
  options.seed = 6;
  EXPECT_NE(split_indices(options).train, split.train);
}

TEST(Split, FractionIsApartFromTraining) {
  SplitOptions options;
  options.train_images = 1000;
  options.test_images = 7;
  options.validation_fraction = 0.25;
  options.calibration_images = 5000;
  const Split split = split_indices(options);
  EXPECT_EQ(split.test, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(split.validation.size(), 250u);
  std::set<size_t> both(split.train.begin(), split.train.end());
  both.insert(split.validation.begin(), split.validation.end());
  EXPECT_EQ(both.size(), 1000u);
  EXPECT_EQ(split.calibration, split.train);
}

TEST(Split, EmptyListsAreRefused) {
  SplitOptions options;
  testing::expect_part(testing::data_refusal([&] { split_indices(options); }), "training set has no image");
  options.train_images = 3;
  testing::expect_part(testing::data_refusal([&] { split_indices(options); }), "validation set has no image");
  options.validation_images = 3;
  testing::expect_part(testing::data_refusal([&] { split_indices(options); }), "test set has no image");
}

TEST(Random, IsUniform) {
  Random random({1, 2, 3});
  std::vector<int> counts(10);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    ++counts[random.below(10)];
    sum += random.uniform();
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 475);  // five deviations
  EXPECT_NEAR(sum / 100000, 0.5, 0.0046);
  EXPECT_NE(Random({1, 2}).next(), Random({2, 1}).next());
  EXPECT_NE(Random({1}).next(), Random({1, 0}).next());
}

TEST(Synthetic, ClassesDifferAndSplitsAreDisjoint) {
  DatasetSpec spec{.format = "synthetic", .split = "train", .synthetic_size = 40};
  const auto train = open_dataset(spec), again = open_dataset(spec);
  spec.split = "test";
  const auto test = open_dataset(spec);
  EXPECT_EQ(train->read(3).pixels, again->read(3).pixels);
  EXPECT_NE(train->read(3).pixels, test->read(3).pixels);
  EXPECT_EQ(train->label(13), 3);
  EXPECT_EQ(test->class_names().size(), 10u);

  // The stripes of a class repeat: the autocorrelation at a fixed shift is near for two images of one class and
  // differs between classes, whatever the place of the stripes.
  const auto correlation = [](const Image& image, int dy, int dx) {
    double sum = 0, mean = 0;
    for (const uint8_t pixel : image.pixels) mean += pixel;
    mean /= static_cast<double>(image.pixels.size());
    for (int y = 0; y + dy < image.height; ++y) {
      for (int x = 0; x + dx < image.width; ++x) {
        sum += (image.pixels[(y * image.width + x) * 3] - mean) *
               (image.pixels[((y + dy) * image.width + x + dx) * 3] - mean);
      }
    }
    return sum / (image.height * image.width * 1000.0);
  };
  double within = 0, between = 0;
  for (int a = 0; a < 10; ++a) {
    for (int dy = 0; dy < 4; ++dy) {
      for (int dx = 0; dx < 4; ++dx) {
        const double value = correlation(train->read(a), dy, dx);
        within += std::abs(value - correlation(test->read(a + 10), dy, dx));
        between += std::abs(value - correlation(test->read((a + 1) % 10), dy, dx));
      }
    }
  }
  EXPECT_LT(2 * within, between);
}

}  // namespace
}  // namespace octet
