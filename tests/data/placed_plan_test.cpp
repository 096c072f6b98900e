// SPDX-License-Identifier: Apache-2.0
// Plans of placed images, made by the arithmetic of the GPU's kernel, are the pixels of place(), and their labels are
// those of the loader's own batches.
#include "src/data/image_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/training/placed_pixel.h"
#include "src/data/loader.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::expect_part;
using testing::jpeg_bytes;
using testing::noise;
using testing::png_bytes;
using testing::TemporaryFolder;

constexpr int kImages = 8;

/// Writes a filter as the kernel reads it, at the end of `filters`.
kernels::ResampleAxis put(const ResizeFilter& filter, std::vector<int32_t>& filters) {
  const kernels::ResampleAxis axis{static_cast<int64_t>(filters.size()), filter.taps};
  for (size_t i = 0; i < filter.outputs(); ++i) {
    filters.insert(filters.end(), {filter.first[i], filter.count[i]});
    const auto weights = filter.weights.begin() + static_cast<std::ptrdiff_t>(i) * filter.taps;
    filters.insert(filters.end(), weights, weights + filter.taps);
  }
  return axis;
}

/// Makes the pixels that a plan says, whose images the CPU has decoded, with the kernel's arithmetic.
std::vector<uint8_t> made(const PlacedPlan& plan, const Transform& t) {
  std::vector<kernels::PlacedTile> tiles;
  std::vector<int32_t> filters;
  for (const TilePlan& part : plan.tiles) {
    kernels::PlacedTile& tile = tiles.emplace_back(part.tile);
    EXPECT_FALSE(part.image.pixels.empty());
    tile.pixels = part.image.pixels.data();
    tile.stride = static_cast<int64_t>(part.image.width) * part.image.channels;
    tile.rows = put(part.rows, filters);
    tile.columns = put(part.columns, filters);
  }
  const kernels::PlacedImage image{0, static_cast<int32_t>(plan.mixed), static_cast<int32_t>(tiles.size()),
                                   plan.two ? 1 : 0};
  std::vector<uint8_t> out(static_cast<size_t>(t.height) * t.width * t.channels);
  const kernels::PlaceShape shape{1, t.height, t.width, t.channels, t.order == ChannelOrder::bgr, kLetterboxGrey};
  const kernels::PlaceBatch batch{&image, tiles.data(), filters.data(), out.data()};
  for (int y = 0; y < t.height; ++y)
    for (int x = 0; x < t.width; ++x)
      t.channels == 1 ? kernels::write_placed_pixel<1>(shape, batch, 0, y, x)
                      : kernels::write_placed_pixel<3>(shape, batch, 0, y, x);
  return out;
}

/// Images of different sizes, as `encoded` says, with two boxes each.
DatasetSpec box_folder(const TemporaryFolder& folder, int channels, std::string (*encoded)(const Image&),
                       const std::string& ending) {
  DatasetSpec spec = testing::write_boxes(
      folder, kImages, ending,
      [](int i) {
        return ImageSize{40 + i * 37 % 90, 45 + i * 53 % 120};
      },
      [&](const ImageSize& size, int i) {
        return encoded(noise(size.height, size.width, channels, static_cast<uint64_t>(i)));
      });
  spec.channels = channels;
  return spec;
}

DatasetSpec png_boxes(const TemporaryFolder& folder, int channels = 3) {
  return box_folder(folder, channels, png_bytes, ".png");
}

/// Compares planned batches of several epochs with those that the loader makes: pixels, labels and sizes.
void expect_loaders_batches(const Dataset& set, const Transform& t, bool join = true) {
  std::vector<size_t> all(set.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  long compared = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    LoaderOptions options{.batch_size = 4, .train = true, .join = join, .seed = 5, .epoch = epoch};
    Loader pixels(set, all, t, options);
    options.plan = true;
    Loader plans(set, all, t, options);
    Batch expected, batch;
    while (pixels.next(expected)) {
      ASSERT_TRUE(plans.next(batch));
      ASSERT_EQ(batch.labels, expected.labels);
      ASSERT_EQ(batch.labels_shape, expected.labels_shape);
      ASSERT_EQ(batch.sizes, expected.sizes);
      ASSERT_EQ(batch.input, expected.input);
      ASSERT_TRUE(batch.images.empty() && batch.plans.empty());
      ASSERT_EQ(batch.placed.size(), size_t{4});
      Transform own = t;
      own.height = batch.input.height, own.width = batch.input.width;
      const size_t bytes = static_cast<size_t>(own.height) * own.width * own.channels;
      for (size_t i = 0; i < 4; ++i, ++compared) {
        const auto first = expected.images.begin() + static_cast<std::ptrdiff_t>(i * bytes);
        ASSERT_EQ(made(batch.placed[i], own), std::vector<uint8_t>(first, first + static_cast<std::ptrdiff_t>(bytes)))
            << "epoch " << epoch << " image " << i;
      }
    }
    ASSERT_FALSE(plans.next(batch));
  }
  EXPECT_EQ(compared, 8 * static_cast<long>(set.size()));
}

void expect_placed(const Transform& t, bool join = true) {
  const TemporaryFolder folder;
  expect_loaders_batches(*open_dataset(png_boxes(folder, t.channels)), t, join);
}

TEST(PlacedPlan, LetterboxedMovedAndRecoloured) {
  Transform t{.height = 64, .width = 72, .fit = Fit::letterbox, .flip = true, .scale = 0.5, .translate = 0.3};
  expect_placed(t);
  t.hsv = true;
  t.order = ChannelOrder::bgr;
  expect_placed(t);
  t.fit = Fit::stretch;
  expect_placed(t);
  t.random_resized_crop = true;
  expect_placed(t);
}

TEST(PlacedPlan, Turned) {
  Transform t{.height = 64, .width = 72, .fit = Fit::letterbox_corner, .flip = true, .degrees = 40, .shear = 10};
  expect_placed(t);
  t.scale = 0.7, t.translate = 0.4, t.hsv = true;
  expect_placed(t);
}

TEST(PlacedPlan, MosaicsAndMixedImages) {
  Transform t{.height = 64, .width = 48, .fit = Fit::letterbox_corner, .flip = true, .scale = 0.5, .translate = 0.1};
  t.hsv = true;
  t.mosaic = 0.7;
  expect_placed(t);
  t.degrees = 10, t.shear = 2;
  expect_placed(t);
  t.mixup = 0.6;
  expect_placed(t);
  expect_placed(t, /*join=*/false);
  t.mosaic = 0;
  t.order = ChannelOrder::bgr;
  expect_placed(t);
}

TEST(PlacedPlan, GreyImages) {
  Transform t{.channels = 1, .height = 64, .width = 48, .fit = Fit::letterbox, .degrees = 20, .hsv = true};
  t.mosaic = 0.5;
  expect_placed(t);
}

TEST(PlacedPlan, BatchesOfSeveralSizes) {
  Transform t{.height = 64, .width = 64, .fit = Fit::letterbox_corner, .scale = 0.5, .mosaic = 0.5};
  t.multi_scale = 0.5;
  ASSERT_EQ(input_sizes(t).size(), size_t{3});
  expect_placed(t);
}

/// Masks of segmentation move with images that a GPU makes, placed and cropped.
TEST(PlacedPlan, MasksAreThoseOfTheLoader) {
  const auto set = open_dataset({.format = "synthetic",
                                 .split = "train",
                                 .image_size = 40,
                                 .synthetic_size = 8,
                                 .synthetic_classes = 4,
                                 .labels = Labels::pixels});
  Transform t{.height = 64, .width = 48, .fit = Fit::letterbox, .flip = true, .scale = 0.5, .degrees = 10};
  t.mosaic = 0.5;
  expect_loaders_batches(*set, t);
  const Transform crops{.height = 24, .width = 30, .pad = 4, .flip = true};
  LoaderOptions options{.batch_size = 8, .train = true, .seed = 5};
  Batch expected, batch;
  Loader(*set, {0, 1, 2, 3, 4, 5, 6, 7}, crops, options).next(expected);
  options.plan = true;
  Loader(*set, {0, 1, 2, 3, 4, 5, 6, 7}, crops, options).next(batch);
  EXPECT_EQ(batch.labels, expected.labels);
  EXPECT_EQ(batch.plans.size(), size_t{8});
}

/// JPEGs stay files, with the filters of their size; what the input does not show is not decoded.
TEST(PlacedPlan, AGpuDecodesWhatIsSeen) {
  const TemporaryFolder folder;
  const auto set = open_dataset(box_folder(
      folder, 3, [](const Image& image) { return jpeg_bytes(image, 90); }, ".jpg"));
  Transform t{.height = 64, .width = 48, .fit = Fit::letterbox_corner, .scale = 0.5, .translate = 0.3, .mosaic = 1};
  std::vector<size_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  size_t seen = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    Random random({key});
    Composition composition;
    const PlacedPlan plan = plan_placed(*set, all, key % 8, t, true, random, composition);
    EXPECT_EQ(composition.tiles.size(), size_t{4});
    EXPECT_LE(plan.tiles.size(), size_t{4});
    seen += plan.tiles.size();
    for (const TilePlan& tile : plan.tiles) {
      EXPECT_EQ(tile.file, set->file(tile.index));
      EXPECT_TRUE(tile.image.pixels.empty());
      EXPECT_EQ(tile.rows.outputs(), static_cast<size_t>(tile.tile.kept.bottom - tile.tile.kept.top));
    }
  }
  EXPECT_GT(seen, size_t{200});
  EXPECT_LT(seen, size_t{400});
}

TEST(PlacedPlan, AnImageOfAnotherSizeThanItsBoxesIsRefused) {
  const TemporaryFolder folder;
  const auto set = open_dataset(png_boxes(folder));
  folder.write("train/3.png", png_bytes(noise(50, 50, 3, 1)));
  expect_part(testing::data_refusal([&] { read_image_file(*set, 3); }), "the boxes are of another image");
}

}  // namespace
}  // namespace octet
