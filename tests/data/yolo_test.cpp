// SPDX-License-Identifier: Apache-2.0
// YOLO's text files: the folders that are found, boxes and polygons, and lines that are refused.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "src/data/box_annotations.h"
#include "tests/data/images.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::png_bytes;
using testing::TemporaryFolder;

class Yolo : public ::testing::Test {
 protected:
  DatasetSpec spec(const std::string& split = "train") const {
    return {.format = "yolo",
            .path = folder_.path(),
            .split = split,
            .class_names = {"cell", "dog", "eel"},
            .labels = Labels::boxes};
  }
  void write_image(const std::string& name, int height = 40, int width = 80) const {
    folder_.write(name, png_bytes(testing::noise(height, width, 3, 1)));
  }

  TemporaryFolder folder_;
};

TEST_F(Yolo, FindsEachLayout) {
  for (const auto& [split, image, label] :
       std::vector<std::array<const char*, 3>>{{"a", "images/a/x/p.png", "labels/a/x/p.txt"},
                                               {"b", "b/images/p.png", "b/labels/p.txt"},
                                               {"images/c", "images/c/p.png", "labels/c/p.txt"},
                                               {"images/../d/images", "d/images/p.png", "d/labels/p.txt"}}) {
    write_image(image);
    folder_.write(label, "1 0.5 0.25 0.25 0.5\n");
    const auto dataset = open_dataset(spec(split));
    ASSERT_EQ(dataset->size(), 1u) << split;
    EXPECT_EQ(dataset->boxes(0).at(0).box, (Box{30, 0, 20, 20})) << split;
    EXPECT_EQ(dataset->boxes(0).at(0).class_index, 1);
    EXPECT_EQ(dataset->boxes(0).at(0).area, 400);
    EXPECT_EQ(dataset->read(0).width, 80);
  }
  const TemporaryFolder other;
  other.write("set.tar", testing::tar_of(folder_, "set/"));
  for (const auto& [split, image] : std::vector<std::array<const char*, 2>>{{"a", "images/a/x/p.png"},
                                                                            {"b", "b/images/p.png"},
                                                                            {"images/c", "images/c/p.png"},
                                                                            {"images/../d/images", "d/images/p.png"}}) {
    DatasetSpec archived = spec(split);
    archived.path = other.path("set.tar");
    const auto dataset = open_dataset(archived);
    ASSERT_EQ(dataset->size(), 1u) << split;
    EXPECT_EQ(dataset->describe(0), other.path("set.tar/set/") + image);
    EXPECT_EQ(dataset->boxes(0).at(0).box, (Box{30, 0, 20, 20})) << split;
    EXPECT_EQ(dataset->read(0).width, 80);
  }
  expect_part(data_refusal([&] { open_dataset(spec("e")); }),
              folder_.path("images/e") + " with " + folder_.path("labels/e") + ", ");
  DatasetSpec nameless = spec("a");
  nameless.class_names.clear();
  expect_part(data_refusal([&] { open_dataset(nameless); }), "nothing says what the classes of YOLO's labels are");
}

/// The folder of the images need not be the last that has "images" in its name.
TEST_F(Yolo, LabelsLieWhereAFolderIsCalledImages) {
  write_image("images/my_images/p.png");
  folder_.write("labels/my_images/p.txt", "1 0.5 0.25 0.25 0.5\n");
  EXPECT_EQ(open_dataset(spec("images/my_images"))->size(), 1u);
  expect_part(data_refusal([&] { open_dataset(spec("images/none")); }),
              folder_.path("images/none") + " with " + folder_.path("labels/none") + "; see");
}

TEST_F(Yolo, ReadsBoxesPolygonsAndImagesWithoutBoxes) {
  write_image("images/train/a.png");
  write_image("images/train/b.png");
  write_image("images/train/c.png", 10, 20);
  folder_.write("labels/train/a.txt", "2 0.25 0.5 0.5 1\r\n\n0 0.9 0.3 0.1 0.2 0.4 0.8\n");
  folder_.write("labels/train/b.txt", "");
  const auto dataset = open_dataset(spec());
  ASSERT_EQ(dataset->size(), 3u);
  ASSERT_EQ(dataset->boxes(0).size(), 2u);
  EXPECT_EQ(dataset->boxes(0)[0].box, (Box{0, 0, 40, 40}));
  const Box around = dataset->boxes(0)[1].box;
  EXPECT_NEAR(around.x, 8, 1e-9);
  EXPECT_NEAR(around.y, 8, 1e-9);
  EXPECT_NEAR(around.width, 64, 1e-9);
  EXPECT_NEAR(around.height, 24, 1e-9);
  EXPECT_TRUE(dataset->boxes(1).empty());
  EXPECT_TRUE(dataset->boxes(2).empty());
  ASSERT_EQ(dataset->notes().size(), 1u);
  expect_part(dataset->notes()[0], "1 images have no .txt in ");
}

TEST_F(Yolo, NamesTheLineThatIsWrong) {
  write_image("images/train/a.png");
  const auto refused = [&](const std::string& line) {
    folder_.write("labels/train/a.txt", "0 0.5 0.5 0.5 0.5\n" + line + "\n");
    return data_refusal([&] { open_dataset(spec()); });
  };
  expect_part(refused("3 0.5 0.5 0.1 0.1"), "labels/train/a.txt:2: class 3, but there are 3, from 0");
  expect_part(refused("0.5 0.5 0.5 0.1 0.1"), "a.txt:2: class 0.5");
  expect_part(refused("1 0.5 0.5 0.1"), "a.txt:2: 3 numbers behind the class; a box has 4");
  expect_part(refused("1 0.5 0.5 0.1 0.1 0.3 0.3 0.9"), "a.txt:2: 7 numbers");
  expect_part(refused("1 0.5 0.5 -0.1 0.1"), "a.txt:2: a box of negative size");
  expect_part(refused("1 0.5 O.5 0.1 0.1"), "a.txt:2: 'O.5' is no number");
  expect_part(refused("1 0.5 nan 0.1 0.1"), "'nan' is no number");
  expect_part(refused("1 40 20 10 10"), "a.txt:2: 40 is no share of the image; a box has 4 (CLASS X Y WIDTH HEIGHT)");
  expect_part(refused("1 0.5 0.5 0.1 0.1 0.4 0.4 2 0.6 0.6 2"), "a.txt:2: 2 is no share of the image");  // key points
  expect_part(refused("1 0.5 0.5 0.1 0.1 0.4 0.4 2"), "key points are not read");
  DatasetSpec lenient = spec();
  lenient.leave_out_faults = true;
  folder_.write("labels/train/a.txt", "0 0.5 0.5 0.5 0.5\n3 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1\n");
  const auto left = open_dataset(lenient);
  ASSERT_EQ(left->boxes(0).size(), 2u);
  EXPECT_EQ(left->boxes(0)[1].class_index, 2);
  expect_part(left->notes().at(0), "1 box left out, the first: ");
  expect_part(left->notes().at(0), "a.txt:2: class 3");
  folder_.write("labels/train/a.txt", "0 0.9 0.5 0.5 0.5\n\v\n \f\n1 0.5 0.5 0 0.5\n");
  const std::vector<std::string> notes = open_dataset(spec())->notes();
  ASSERT_EQ(notes.size(), 2u);
  expect_part(notes[0], "1 box outside the image, the first: ");
  expect_part(notes[1], "a.txt:4");
  folder_.write("labels/train/other.txt", "");
  std::filesystem::remove(folder_.path("labels/train/a.txt"));
  expect_part(data_refusal([&] { open_dataset(spec()); }), "none of the 1 images in ");
}

}  // namespace
}  // namespace octet
