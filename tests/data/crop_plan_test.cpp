// SPDX-License-Identifier: Apache-2.0
// Plans of training images: what they say is made of which pixels is what training_pixels() makes; which files a GPU
// decodes.
#include "src/data/image_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::expect_part;
using testing::gradient;
using testing::jpeg_bytes;
using testing::jpeg_with_exif;
using testing::noise;
using testing::png_bytes;
using testing::TemporaryFolder;

/// Makes the pixels that a plan says, one after the other: no row of the image is summed twice.
std::vector<uint8_t> made(const CropPlan& plan, const Transform& t) {
  const auto byte = [](int sum) { return static_cast<uint8_t>(std::clamp(sum >> kFilterBits, 0, 255)); };
  std::vector<uint8_t> out;
  for (int y = 0; y < t.height; ++y) {
    for (int x = 0; x < t.width; ++x) {
      const bool inside = plan.rows.count[y] > 0 && plan.columns.count[x] > 0;
      const bool filled = std::any_of(plan.filled.begin(), plan.filled.end(), [&](const Rectangle& r) {
        return y >= r.top && y < r.top + r.height && x >= r.left && x < r.left + r.width;
      });
      for (int c = 0; c < t.channels; ++c) {
        int sum = 1 << (kFilterBits - 1);
        for (int k = 0; k < plan.rows.count[y]; ++k) {
          int row = 1 << (kFilterBits - 1);
          for (int j = 0; j < plan.columns.count[x]; ++j) {
            const size_t pixel =
                static_cast<size_t>(plan.rows.first[y] + k) * plan.image.width + plan.columns.first[x] + j;
            row += plan.columns.weights[x * plan.columns.taps + j] * plan.image.pixels.at(pixel * t.channels + c);
          }
          sum += plan.rows.weights[y * plan.rows.taps + k] * byte(row);
        }
        out.push_back(filled ? t.fill[c] : inside ? byte(sum) : t.outside);
      }
    }
  }
  return out;
}

/// PNG files of different sizes, the first the smallest, in two classes.
DatasetSpec png_folder(const TemporaryFolder& folder, int channels) {
  const std::pair<int, int> sizes[] = {{40, 40}, {41, 90}, {120, 47}, {200, 64}, {40, 333}, {77, 77}};
  for (size_t i = 0; i < std::size(sizes); ++i)
    folder.write("class" + std::to_string(i % 2) + "/" + std::to_string(i) + ".png",
                 png_bytes(noise(sizes[i].first, sizes[i].second, channels, i)));
  return {.format = "image_folder", .path = folder.path(), .split = "", .channels = channels};
}

/// Every image many times through the transform, by plan and by training_pixels().
void expect_training_pixels(const Transform& t) {
  const TemporaryFolder folder;
  const auto set = open_dataset(png_folder(folder, t.channels));
  ASSERT_EQ(why_not_planned(t), "");
  for (size_t index = 0; index < set->size(); ++index) {
    for (uint64_t key = 0; key < 12; ++key) {
      std::vector<uint8_t> expected(static_cast<size_t>(t.height) * t.width * t.channels);
      Random random({key, index}), again({key, index});
      training_pixels(set->read(index), t, random, expected.data());
      const CropPlan plan = plan_crop(*set, index, t, again);
      ASSERT_EQ(made(plan, t), expected) << set->describe(index) << " key " << key;
      ASSERT_EQ(random.below(1u << 30), again.below(1u << 30)) << "other random numbers were drawn";
    }
  }
}

TEST(CropPlan, RandomResizedCrop) {
  expect_training_pixels({.height = 28, .width = 30, .random_resized_crop = true, .flip = true});
  expect_training_pixels({.channels = 1, .height = 60, .width = 50, .random_resized_crop = true, .flip = true});
}

TEST(CropPlan, ResizedAndCropped) {
  expect_training_pixels({.height = 28, .width = 30, .resize = 32, .flip = true});
  expect_training_pixels({.height = 28, .width = 30, .resize = 64, .even_margin = true, .flip = true});
}

TEST(CropPlan, PaddedAndCropped) {
  Transform t{.height = 28, .width = 30, .resize = 30, .pad = 9, .flip = true};
  expect_training_pixels(t);
  t.outside = 77;
  t.resize = 0;
  expect_training_pixels(t);
}

TEST(CropPlan, CutoutAndErasing) {
  Transform t{.height = 28, .width = 30, .random_resized_crop = true, .flip = true, .cutout = 13, .fill = {3, 5, 250}};
  expect_training_pixels(t);
  t.random_erasing = 0.7;
  expect_training_pixels(t);
}

TEST(CropPlan, WhatChangesPixelsOnTheCpuIsNamed) {
  EXPECT_EQ(why_not_planned({.fit = Fit::letterbox}), "");
  expect_part(why_not_planned({.rand_augment = 2}), "rand_augment");
  expect_part(why_not_planned({.mixup_alpha = 0.2}), "mixup_alpha");
  expect_part(why_not_planned({.jitter = {.brightness = 0.4}}), "color_jitter");
}

/// One file in a class, planned.
CropPlan plan_of(const std::string& name, const std::string& bytes, Orientation orientation = Orientation::exif) {
  const TemporaryFolder folder;
  folder.write("class/" + name, bytes);
  const auto set = open_dataset(
      {.format = "image_folder", .path = folder.path(), .split = "", .channels = 3, .orientation = orientation});
  Random random({1});
  return plan_crop(*set, 0, {.height = 16, .width = 16, .random_resized_crop = true}, random);
}

TEST(CropPlan, AGpuDecodesUsualJpegs) {
  const std::string jpeg = jpeg_bytes(gradient(40, 60, 3), 90);
  const CropPlan plan = plan_of("a.jpg", jpeg);
  EXPECT_EQ(plan.file, jpeg);
  EXPECT_EQ(plan.why_cpu, "");
  EXPECT_TRUE(plan.image.pixels.empty());
  EXPECT_EQ(plan.image.height, 40);
  EXPECT_EQ(plan.image.width, 60);
  EXPECT_EQ(plan.image.channels, 3);
  EXPECT_EQ(plan_of("a.jpg", jpeg_with_exif(jpeg, testing::exif_bytes(1, true))).why_cpu, "");
  EXPECT_EQ(plan_of("a.jpg", jpeg_with_exif(jpeg, testing::exif_bytes(6, true)), Orientation::as_stored).why_cpu, "");
}

TEST(CropPlan, TheCpuDecodesTheOthers) {
  const Image colour = gradient(40, 60, 3);
  const std::string jpeg = jpeg_bytes(colour, 90);
  const auto expect_cpu = [&](const std::string& name, const std::string& bytes, const std::string& why, int height) {
    const CropPlan plan = plan_of(name, bytes);
    EXPECT_EQ(plan.why_cpu, why);
    EXPECT_TRUE(plan.file.empty()) << why;
    EXPECT_EQ(plan.image.height, height) << why;
    EXPECT_EQ(plan.image.pixels.size(), size_t{40} * 60 * 3) << why;
  };
  expect_cpu("a.jpg", jpeg_bytes(colour, 90, /*progressive=*/true), "progressive", 40);
  expect_cpu("a.jpg", jpeg_bytes(gradient(40, 60, 1), 90), "grey JPEG", 40);
  expect_cpu("a.jpg", jpeg_bytes(gradient(40, 60, 4), 90), "colours other than YCbCr", 40);
  expect_cpu("a.png", png_bytes(colour), "no JPEG", 40);
  expect_cpu("a.jpg", jpeg_with_exif(jpeg, testing::exif_bytes(6, true)), "turned as their EXIF data says", 60);
  expect_cpu("a.jpg", jpeg + "tail", "no end marker at the end", 40);
}

TEST(CropPlan, ADamagedFileIsNamed) {
  const std::string jpeg = jpeg_bytes(noise(40, 60, 3, 1), 90);
  expect_part(testing::data_refusal([&] { plan_of("cut.jpg", jpeg.substr(0, jpeg.size() / 2)); }), "cut.jpg");
  expect_part(testing::data_refusal([&] { plan_of("none.jpg", "hello, world"); }), "none.jpg");
}

TEST(CropPlan, DecodedByTheCpuAfterAll) {
  const std::string jpeg = jpeg_bytes(gradient(40, 60, 3), 90);
  CropPlan plan = plan_of("a.jpg", jpeg);
  decode_by_cpu(plan, 3, "a.jpg", "refused");
  EXPECT_EQ(plan.image.pixels, decode_image(jpeg, 3, "a.jpg").pixels);
  EXPECT_TRUE(plan.file.empty());
  EXPECT_EQ(plan.why_cpu, "refused");
}

/// The loader's batches by plan are, image by image, those that it decodes.
TEST(CropPlan, BatchesOfTheLoader) {
  const TemporaryFolder folder;
  const auto set = open_dataset(png_folder(folder, 3));
  const Transform t{.height = 28, .width = 30, .random_resized_crop = true, .flip = true};
  LoaderOptions options{.batch_size = 3, .train = true, .seed = 5, .epoch = 2};
  Loader pixels(*set, {0, 1, 2, 3, 4, 5}, t, options);
  options.plan = true;
  Loader plans(*set, {0, 1, 2, 3, 4, 5}, t, options);
  Batch expected, batch;
  for (int b = 0; b < 2; ++b) {
    ASSERT_TRUE(pixels.next(expected));
    ASSERT_TRUE(plans.next(batch));
    EXPECT_EQ(batch.labels, expected.labels);
    EXPECT_EQ(batch.indices, expected.indices);
    EXPECT_EQ(batch.sizes, expected.sizes);
    EXPECT_TRUE(batch.images.empty());
    ASSERT_EQ(batch.plans.size(), size_t{3});
    const size_t bytes = size_t{28} * 30 * 3;
    for (size_t i = 0; i < 3; ++i) {
      const auto first = expected.images.begin() + static_cast<std::ptrdiff_t>(i * bytes);
      EXPECT_EQ(made(batch.plans[i], t), std::vector<uint8_t>(first, first + static_cast<std::ptrdiff_t>(bytes)));
    }
  }
  EXPECT_FALSE(plans.next(batch));
}

}  // namespace
}  // namespace octet
