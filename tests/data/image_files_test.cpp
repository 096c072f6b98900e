// SPDX-License-Identifier: Apache-2.0
// Images without labels, and how they are fitted to a network's input.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/data/image_files.h"
#include "src/data/transform.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::noise;
using testing::png_bytes;
using testing::TemporaryFolder;

std::vector<std::string> names(const ImageList& images) {
  std::vector<std::string> all;
  for (size_t i = 0; i < images.size(); ++i) all.push_back(images.describe(i));
  return all;
}

class ImageLists : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("set/b.png", png_bytes(noise(4, 4, 3, 1)));
    folder.write("set/deep/er/a.JPG", testing::jpeg_bytes(noise(4, 4, 3, 2), 90));
    folder.write("set/.hidden/c.png", "not read");
    folder.write("set/.d.png", "not read");
    folder.write("set/notes.txt", "no image");
  }
  TemporaryFolder folder;
};

TEST_F(ImageLists, AFolderIsReadWithAllWithinAndWhatIsLeftOutIsSaid) {
  const ImageList images({folder.path("set")}, 3, Orientation::as_stored);
  EXPECT_EQ(names(images), (std::vector<std::string>{folder.path("set/b.png"), folder.path("set/deep/er/a.JPG")}));
  EXPECT_EQ(images.read(0).pixels, noise(4, 4, 3, 1).pixels);
  EXPECT_EQ(images.header(1)->width, 4);
  ASSERT_EQ(images.notes().size(), 1u);
  expect_part(images.notes()[0], "left out: .txt 1 (notes.txt)");
}

TEST_F(ImageLists, FilesAndPatternsAreTakenInTheOrderGiven) {
  folder.write("set/a.png", png_bytes(noise(4, 4, 3, 3)));
  const ImageList images({folder.path("set/deep/er/a.JPG"), folder.path("set/*.png")}, 1, Orientation::exif);
  EXPECT_EQ(names(images), (std::vector<std::string>{folder.path("set/deep/er/a.JPG"), folder.path("set/a.png"),
                                                     folder.path("set/b.png")}));
  EXPECT_EQ(images.read(1).channels, 1);
}

TEST_F(ImageLists, WhatHoldsNoImageIsRefused) {
  folder.write("empty/a.txt", "");
  const auto refusal = [&](const char* name) {
    return data_refusal([&] { ImageList({folder.path(name)}, 3, Orientation::exif); });
  };
  expect_part(refusal("empty"), "no image (JPEG, PNG, BMP, WebP): left out: .txt 1 (a.txt)");
  expect_part(refusal("absent"), "no such file or folder");
  expect_part(refusal("*.none"), "a pattern that nothing matches");
  folder.write("all.tar.gz", "");
  expect_part(refusal("all.tar.gz"), "gunzip -k");
}

Transform transform(Fit fit, int height, int width) { return {.height = height, .width = width, .fit = fit}; }

const uint8_t* pixel(const Image& image, int y, int x) {
  return &image.pixels[(static_cast<size_t>(y) * image.width + x) * image.channels];
}

/// Returns the rows and columns that are not the letterbox's grey, as {top, left, bottom, right} with the last two
/// beyond.
std::vector<int> inner(const Image& image) {
  std::vector<int> box = {image.height, image.width, 0, 0};
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      if (*pixel(image, y, x) != kLetterboxGrey)
        box = {std::min(box[0], y), std::min(box[1], x), std::max(box[2], y + 1), std::max(box[3], x + 1)};
  return box;
}

TEST(FitImage, LetterboxKeepsTheAspectRatio) {
  const Image wide{30, 77, 3, std::vector<uint8_t>(30 * 77 * 3, 200)};
  // 50 / 77 of 30 are 19.48 rows: 19 by both rules, and 13 of 32 rows above and below are grey, or 13 below.
  EXPECT_EQ(inner(evaluation_image(wide, transform(Fit::letterbox, 32, 50))), (std::vector<int>{6, 0, 25, 50}));
  EXPECT_EQ(inner(evaluation_image(wide, transform(Fit::letterbox_corner, 32, 50))), (std::vector<int>{0, 0, 19, 50}));
  // 20 / 30 of 40 are 26.67: rounded to 27 in the middle, down to 26 in the corner.
  const Image high{30, 40, 3, std::vector<uint8_t>(30 * 40 * 3, 200)};
  EXPECT_EQ(inner(evaluation_image(high, transform(Fit::letterbox, 20, 40))), (std::vector<int>{0, 6, 20, 33}));
  EXPECT_EQ(inner(evaluation_image(high, transform(Fit::letterbox_corner, 20, 40))), (std::vector<int>{0, 0, 20, 26}));
}

TEST(FitImage, StretchResizesBothSides) {
  const Image image = noise(9, 14, 3, 5);
  const Image expected = resize(view(image), 20, 6);
  EXPECT_EQ(evaluation_image(image, transform(Fit::stretch, 20, 6)).pixels, expected.pixels);
}

TEST(FitImage, BgrExchangesRedAndBlue) {
  const Image image = noise(6, 5, 3, 6);
  Transform t = transform(Fit::crop, 6, 5);
  t.order = ChannelOrder::bgr;
  const Image turned = evaluation_image(image, t);
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 5; ++x) {
      for (int c = 0; c < 3; ++c) EXPECT_EQ(pixel(turned, y, x)[c], pixel(image, y, x)[2 - c]);
    }
  }
}

TEST(FitImage, SmallImagesAreRefusedByTheCropOnly) {
  expect_part(data_refusal([] { check_size({4, 9}, transform(Fit::crop, 5, 5), false); }), "smaller than the crop");
  for (const Fit fit : {Fit::stretch, Fit::letterbox, Fit::letterbox_corner})
    EXPECT_NO_THROW(check_size({1, 900}, transform(fit, 5, 5), false));
  EXPECT_EQ(inner(evaluation_image({1, 900, 3, std::vector<uint8_t>(2700, 9)}, transform(Fit::letterbox, 5, 50))),
            (std::vector<int>{2, 0, 3, 50}));
}

}  // namespace
}  // namespace octet
