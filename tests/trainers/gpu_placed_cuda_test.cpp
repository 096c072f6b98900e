// SPDX-License-Identifier: Apache-2.0
// data.decode: gpu for detectors and segmentation: images that are placed, turned, recoloured, in mosaics and mixed.
// What the CPU decodes becomes the loader's bytes, JPEGs that the GPU decodes differ by few levels; boxes and masks are
// equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "kernels/training/placed_pixel.h"
#include "src/data/loader.h"
#include "tests/data/images.h"
#include "tests/trainers/decoded_batches.h"
#include "trainers/loop/gpu_images.h"

namespace octet {
namespace {

using testing::jpeg_bytes;
using testing::noise;
using testing::png_bytes;
using testing::TemporaryFolder;
using testing_trainers::Differences;
using testing_trainers::differences;
using testing_trainers::painted;

constexpr int kImages = 30;

/// Images of different sizes, written by `file(size, number)`, with two boxes each.
template <typename File>
RunData boxes_of(const TemporaryFolder& folder, const std::string& ending, const File& file) {
  RunData data = testing_trainers::gpu_decoded(testing::write_boxes(
      folder, kImages, ending,
      [](int i) {
        return ImageSize{64 + i * 37 % 200, 64 + i * 53 % 300};
      },
      file));
  Transform& t = data.train_transform;
  t.height = 160, t.width = 192;
  t.fit = Fit::letterbox_corner;
  t.order = ChannelOrder::bgr;
  data.mean = {0, 0, 0};
  data.std = {0.5f, 0.5f, 0.5f};
  return data;
}

RunData png_boxes(const TemporaryFolder& folder) {
  return boxes_of(folder, ".png", [](const ImageSize& size, int i) {
    return png_bytes(noise(size.height, size.width, 3, static_cast<uint64_t>(i)));
  });
}

RunData jpeg_boxes(const TemporaryFolder& folder) {
  return boxes_of(folder, ".jpg",
                  [](const ImageSize& size, int i) { return jpeg_bytes(painted(size.height, size.width, i), 92); });
}

void expect_loaders(const RunData& data) {
  const Differences found = differences(data);
  EXPECT_EQ(found.batches, 6);
  EXPECT_EQ(found.largest, 0);
}

/// Needs no GPU: plans of a batch in two parts, read by the arithmetic of the kernel, give the loader's pixels.
TEST(GpuPlans, AreWhatTheKernelReads) {
  const TemporaryFolder folder;
  const RunData data = png_boxes(folder);
  Transform t = data.train_transform;
  t.scale = 0.5, t.translate = 0.1, t.degrees = 10;
  t.hsv = t.flip = true;
  t.mosaic = 0.5, t.mixup = 0.5;
  LoaderOptions options{.batch_size = 5, .train = true, .seed = 4};
  Batch expected, batch;
  Loader(*data.train_set, data.train, t, options).next(expected);
  options.plan = true;
  Loader(*data.train_set, data.train, t, options).next(batch);
  std::vector<uint8_t> images(expected.images.size());
  size_t files = 0;
  for (const auto& [first, end] : std::vector<std::pair<size_t, size_t>>{{0, 2}, {2, 5}}) {
    const GpuPlans plans(batch, first, end);
    std::vector<uint8_t*> pixels;
    for (const PlannedFile& file : files_of(batch, first, end)) pixels.push_back(file.image_file->image.pixels.data());
    files += pixels.size();
    std::vector<uint64_t> memory(plans.bytes() / sizeof(uint64_t) + 1);
    auto* bytes = reinterpret_cast<uint8_t*>(memory.data());
    plans.write(pixels, bytes);
    const kernels::PlaceShape shape{static_cast<int>(end - first), t.height, t.width, 3, true, kLetterboxGrey};
    for (int n = 0; n < shape.batch; ++n)
      for (int y = 0; y < t.height; ++y)
        for (int x = 0; x < t.width; ++x)
          kernels::write_placed_pixel<3>(shape, plans.placed(t, bytes, images.data()), n, y, x);
  }
  EXPECT_GT(files, 5u);
  EXPECT_TRUE(std::equal(images.begin(), images.end(), expected.images.begin()));
}

/// Half of YOLOX's changes of images, without mosaics: what a placed image alone may have.
void change(Transform& t) {
  t.flip = true;
  t.scale = 0.5;
  t.translate = 0.1;
}

TEST(GpuPlaced, WhatTheCpuDecodesIsTheLoaders) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = png_boxes(folder);
  expect_loaders(data);
  Transform& t = data.train_transform;
  change(t);
  expect_loaders(data);
  t.hsv = true;
  expect_loaders(data);
  t.degrees = 10, t.shear = 2;
  expect_loaders(data);
  t.mosaic = 0.6;
  expect_loaders(data);
  t.mixup = 0.5;
  expect_loaders(data);
  t.degrees = t.shear = 0;
  t.order = ChannelOrder::rgb;
  expect_loaders(data);
}

TEST(GpuPlaced, BatchesOfSeveralSizes) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = png_boxes(folder);
  Transform& t = data.train_transform;
  change(t);
  t.mosaic = 0.6;
  t.multi_scale = 0.4;
  ASSERT_EQ(input_sizes(t).size(), 5u);
  expect_loaders(data);
}

TEST(GpuPlaced, MasksAreThoseOfTheLoader) {
  OCTET_NEEDS_NVJPEG();
  RunData data = testing_trainers::gpu_decoded({.format = "synthetic",
                                                .split = "train",
                                                .image_size = 90,
                                                .synthetic_size = kImages,
                                                .synthetic_classes = 4,
                                                .labels = Labels::pixels});
  Transform& t = data.train_transform;
  t.height = 120, t.width = 96;
  t.fit = Fit::letterbox;
  change(t);
  t.degrees = 15;
  t.mosaic = 0.5;
  expect_loaders(data);
  t = {.height = 80, .width = 84, .pad = 3, .flip = true};
  expect_loaders(data);
}

/// The bounds of JPEGs that are cropped hold for those that are placed and turned. Where saturation grows, a grey pixel
/// of one decoder stays grey and its neighbour's does not, so that with `hsv` single pixels differ by more.
TEST(GpuPlaced, JpegsDifferByFewLevels) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = jpeg_boxes(folder);
  Transform& t = data.train_transform;
  change(t);
  t.degrees = 10, t.shear = 2;
  t.mosaic = 0.6, t.mixup = 0.3;
  const Differences found = differences(data);
  std::printf("levels: mean %.4f, largest %.1f\n", found.mean, found.largest);
  EXPECT_EQ(found.batches, 6);
  EXPECT_LE(found.mean, 0.6);
  EXPECT_LE(found.largest, 6);
  EXPECT_GT(found.mean, 0) << "nothing was decoded by another decoder";
  t.hsv = true;
  const Differences recoloured = differences(data);
  std::printf("levels with hsv: mean %.4f, largest %.1f\n", recoloured.mean, recoloured.largest);
  EXPECT_LE(recoloured.mean, 1);
}

}  // namespace
}  // namespace octet
