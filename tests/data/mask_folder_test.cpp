// SPDX-License-Identifier: Apache-2.0
// Images beside masks: the layouts that are found, what masks may hold, and what is refused.
#include "src/data/mask_folder.h"

#include <gtest/gtest.h>
#include <png.h>

#include <array>
#include <utility>

#include "tests/data/images.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::jpeg_bytes;
using testing::png_bytes;
using testing::TemporaryFolder;

constexpr int kHeight = 3, kWidth = 4;
const std::vector<uint8_t> kNumbers = {0, 1, 2, 3, 3, 2, 1, 0, 9, 0, 1, 2};  // 9: no class

/// Returns the bytes of a palette PNG of 4 bits whose colours say nothing of the numbers.
std::string indexed_png(const std::vector<uint8_t>& numbers) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<const char*>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, kWidth, kHeight, 4, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::array<png_color, 16> palette{};
  for (size_t i = 0; i < palette.size(); ++i) palette[i].red = static_cast<uint8_t>(200 - 7 * i);
  png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  png_set_packing(png);
  for (int y = 0; y < kHeight; ++y) png_write_row(png, numbers.data() + static_cast<size_t>(y) * kWidth);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

class MaskFolderTest : public ::testing::Test {
 protected:
  DatasetSpec spec(const std::string& split = "train") const {
    return {.format = "image_folder",
            .path = folder_.path(),
            .split = split,
            .class_names = {"a", "b", "c", "d"},
            .labels = Labels::pixels,
            .ignore_index = 9};
  }
  std::vector<uint8_t> mask(const DatasetSpec& spec) { return open_dataset(spec)->mask(0).pixels; }

  TemporaryFolder folder_;
  const std::string image_ = png_bytes(testing::noise(kHeight, kWidth, 3, 5));
  const std::string numbers_ = png_bytes({kHeight, kWidth, 1, kNumbers});
  const std::vector<uint8_t> classes_ = {0, 1, 2, 3, 3, 2, 1, 0, kUnlabelled, 0, 1, 2};
};

TEST_F(MaskFolderTest, FindsEachLayout) {
  const std::array<std::array<const char*, 3>, 7> layouts = {{{"a", "images/a/p.jpg", "masks/a/p.png"},
                                                              {"b", "images/b/x/p.jpg", "annotations/b/x/p.png"},
                                                              {"c", "c/images/p.jpg", "c/masks/p_mask.png"},
                                                              {"d", "d/p.jpg", "dannot/p.png"},
                                                              {"e", "e/p.jpg", "e_labels/p_L.png"},
                                                              {"f", "f/p.jpg", "f_masks/p.png"},
                                                              {"g", "JPEGImages/p.jpg", "SegmentationClass/p.png"}}};
  folder_.write("ImageSets/Segmentation/g.txt", "p\n");
  for (const auto& [split, image, mask_file] : layouts) {
    folder_.write(image, image_);
    folder_.write(mask_file, numbers_);
    const auto dataset = open_dataset(spec(split));
    ASSERT_EQ(dataset->size(), 1u) << split;
    EXPECT_EQ(dataset->labels(), Labels::pixels);
    EXPECT_EQ(dataset->describe(0), folder_.path(image));
    EXPECT_EQ(dataset->class_names().size(), 4u);
    EXPECT_EQ(dataset->mask(0).pixels, classes_) << split;
    EXPECT_EQ(dataset->read(0).width, kWidth);
    EXPECT_EQ(dataset->header(0)->height, kHeight);
  }
  const TemporaryFolder other;
  // What macOS puts beside a folder, and an older form of a file, which the later one replaces.
  const std::string first = testing::tar_member("._CamVid", "of macOS") +
                            testing::tar_member("CamVid/" + std::string(std::get<2>(layouts[0])), "no mask");
  other.write("masks.tar", first + testing::tar_of(folder_, "CamVid/"));
  for (const auto& [split, image, mask_file] : layouts) {
    DatasetSpec archived = spec(split);
    archived.path = other.path("masks.tar");
    const auto dataset = open_dataset(archived);
    ASSERT_EQ(dataset->size(), 1u) << split;
    EXPECT_EQ(dataset->describe(0), other.path("masks.tar/CamVid/") + image);
    EXPECT_EQ(dataset->mask(0).pixels, classes_) << split;
    EXPECT_EQ(dataset->read(0).width, kWidth);
    EXPECT_EQ(dataset->header(0)->height, kHeight);
  }
  expect_part(data_refusal([&] { open_dataset(spec("h")); }), "no folder of images beside one of masks for 'h'");
  expect_part(data_refusal([&] { open_dataset(spec("h")); }), folder_.path("ImageSets/Segmentation/h.txt"));
  folder_.write("ImageSets/Segmentation/a.txt", "p\n");  // Pascal VOC's is the last
  EXPECT_EQ(open_dataset(spec("a"))->describe(0), folder_.path("images/a/p.jpg"));
}

TEST_F(MaskFolderTest, NumbersAreThoseOfThePaletteNotItsColours) {
  folder_.write("images/train/p.png", image_);
  folder_.write("masks/train/p.png", indexed_png(kNumbers));
  EXPECT_EQ(mask(spec()), classes_);
}

TEST_F(MaskFolderTest, ColoursAreThoseOfTheTable) {
  folder_.write("images/train/p.png", image_);
  Image colours{kHeight, kWidth, 3, {}};
  for (const uint8_t number : kNumbers)
    for (const int value : {10 * number, 255 - number, 7}) colours.pixels.push_back(static_cast<uint8_t>(value));
  folder_.write("masks/train/p.png", png_bytes(colours));
  DatasetSpec by_colour = spec();
  by_colour.class_names.clear();
  by_colour.ignore_index = kUnlabelled;
  by_colour.classes = folder_.path("classes.csv");
  folder_.write("classes.csv",
                "name,r,g,b\nroad,0,255,7\nSide walk,10,254,7\nsky,20,253,7\nroad,30,252,7\n-,90,246,7\n");
  EXPECT_EQ(open_dataset(by_colour)->class_names(), (std::vector<std::string>{"road", "Side walk", "sky"}));
  EXPECT_EQ(mask(by_colour), (std::vector<uint8_t>{0, 1, 2, 0, 0, 2, 1, 0, kUnlabelled, 0, 1, 2}));
  by_colour.ignore_index = 9;
  expect_part(error_of([&] { open_dataset(by_colour); }), "data.ignore_index: means nothing with the colours of ");
  by_colour.ignore_index = kUnlabelled;
  folder_.write("classes.csv", "0 255 7\troad\r\n10 254 7 walk\n20 253 7 sky\n30 252 7 car\n");
  expect_part(data_refusal([&] { mask(by_colour); }), "p.png: colour 90 246 7 at (0, 2) is no class of ");
  expect_part(data_refusal([&] { mask(spec()); }), "p.png: its pixels are colours, no numbers of classes");
  for (const auto& [table, what] : std::vector<std::pair<std::string, std::string>>{
           {"road 0 255 7\nsky\n", ":2: 'sky' has no colour"},
           {"road 0 255 7\nsky 0 255 7\n", ":2: the colour of 'sky' is another line's, too"},
           {"road\nroad\n", ":2: class road is listed twice"},
           {"\n", ": names no class"}}) {
    folder_.write("classes.csv", table);
    expect_part(data_refusal([&] { open_dataset(by_colour); }), what);
  }
}

TEST_F(MaskFolderTest, RefusesWhatDoesNotFit) {
  folder_.write("images/train/p.png", image_);
  folder_.write("images/train/q.png", image_);
  folder_.write("masks/train/p.png", numbers_);
  expect_part(data_refusal([&] { open_dataset(spec()); }), "1 of its 2 images have no mask in ");
  expect_part(data_refusal([&] { open_dataset(spec()); }), "masks/train/q.png");
  folder_.write("masks/train/q.png", png_bytes(testing::noise(kHeight, kWidth + 1, 1, 5)));
  expect_part(data_refusal([&] { open_dataset(spec())->header(1); }), "q.png: 4x3 pixels, its mask ");
  DatasetSpec few = spec();
  few.class_names.pop_back();
  expect_part(data_refusal([&] { mask(few); }),
              "p.png: 3 at (3, 0) is no class: data.class_names names 3 of them, from 0; data.ignore_index is");
  few.class_names.resize(256);
  expect_part(data_refusal([&] { open_dataset(few); }), "data.class_names: names 256 classes, more than 255");
  few.class_names.clear();
  expect_part(data_refusal([&] { open_dataset(few); }), "nothing says of which classes");
  folder_.write("masks/train/p.png", testing::png_of_16_bits(kHeight, kWidth, std::vector<uint16_t>(12)));
  expect_part(data_refusal([&] { mask(spec()); }), "p.png: a mask of 16 bits");
  EXPECT_NE(error_of([&] { open_dataset(spec())->label(0); }).find("the image has none"), std::string::npos);
}

}  // namespace
}  // namespace octet
