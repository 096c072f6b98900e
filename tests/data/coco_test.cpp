// SPDX-License-Identifier: Apache-2.0
// Annotations of boxes in COCO's JSON: what is read, what is told, what is refused by name.
#include "src/data/box_annotations.h"

#include <gtest/gtest.h>

#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::TemporaryFolder;

class Coco : public ::testing::Test {
 protected:
  /// Reads a file with two images, two categories and these annotations.
  BoxAnnotations with(const std::string& annotations) {
    return read(
        R"({"images": [{"id": 9, "file_name": "b.jpg", "height": 20, "width": 30}, {"id": 2, "file_name": "a.jpg"}],
                    "categories": [{"id": 44, "name": "dog"}, {"id": 3, "name": "cat"}], "annotations": [)" +
        annotations + "]}");
  }
  BoxAnnotations read(const std::string& text) {
    folder_.write("a.json", text);
    return read_coco(folder_.path("a.json"));
  }
  std::string refusal(const std::string& annotations) {
    return data_refusal([&] { with(annotations); });
  }
  TemporaryFolder folder_;
};

TEST_F(Coco, ImagesAndCategoriesAreSortedById) {
  const BoxAnnotations read =
      with(R"({"id": 1, "image_id": 9, "category_id": 44, "bbox": [1, 2.5, 3, 4], "area": 5.5, "iscrowd": 1},
              {"id": 2, "image_id": 2, "category_id": 3, "bbox": [1, 2, 3, 4], "segmentation": [[1, 2, 3]]})");
  ASSERT_EQ(read.images.size(), 2u);
  EXPECT_EQ(read.images[0].file, "a.jpg");
  EXPECT_EQ(read.images[1].size, (ImageSize{20, 30}));
  EXPECT_EQ(read.categories[0].name, "cat");
  ASSERT_EQ(read.images[1].labels.size(), 1u);
  const BoxLabel& crowd = read.images[1].labels[0];
  EXPECT_EQ(crowd.box, (Box{1, 2.5, 3, 4}));
  EXPECT_EQ(crowd.class_index, 1);
  EXPECT_EQ(crowd.area, 5.5);
  EXPECT_TRUE(crowd.crowd);
  EXPECT_EQ(read.images[0].labels[0].area, 12);
  EXPECT_FALSE(read.images[0].labels[0].crowd);
  EXPECT_TRUE(read.notes.empty());
  EXPECT_TRUE(with("").images[0].labels.empty());
}

TEST_F(Coco, BoxesOutsideAndWithoutAreaAreTold) {
  const BoxAnnotations read = with(R"({"image_id": 9, "category_id": 3, "bbox": [0, 0, 30.5, 20]},
                                      {"image_id": 9, "category_id": 3, "bbox": [25, 0, 7, 20]},
                                      {"image_id": 9, "category_id": 3, "bbox": [-5, 0, 7, 20]},
                                      {"image_id": 9, "category_id": 3, "bbox": [5, 5, 0, 10]})");
  EXPECT_EQ(read.images[1].labels.size(), 4u);
  ASSERT_EQ(read.notes.size(), 2u);
  expect_part(read.notes[0], "2 boxes outside the image, the first: " + folder_.path("a.json") + ": annotations[1]");
  expect_part(read.notes[1], "1 box without area, which nothing can match, the first: ");
  expect_part(read.notes[1], "annotations[3]");
}

TEST_F(Coco, BadFilesAreRefusedByEntry) {
  const std::string good = R"({"image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4]}, )";
  expect_part(refusal(good + R"({"image_id": 8, "category_id": 3, "bbox": [1, 2, 3, 4]})"),
              "annotations[1]: image_id 8 is none of 'images'");
  expect_part(refusal(good + R"({"image_id": 9, "category_id": 4, "bbox": [1, 2, 3, 4]})"),
              "annotations[1]: category_id 4 is none of 'categories'");
  for (const char* box : {"[1, 2, 3]", "[1, 2, -3, 4]", "[1, 2, \"3\", 4]", "{}", "[1, 2, 3, 4, 5]"})
    expect_part(refusal(good + R"({"image_id": 9, "category_id": 3, "bbox": )" + box + "}"), "annotations[1]: bbox ");
  expect_part(refusal(R"({"image_id": 9, "category_id": 3})"), "annotations[0]: 'bbox' is missing");
  expect_part(refusal(R"({"image_id": "9", "category_id": 3, "bbox": [1, 2, 3, 4]})"), "'image_id' is no whole number");
  expect_part(refusal(R"({"image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 2})"), "iscrowd 2");
  expect_part(data_refusal([&] { read(R"({"images": [], "categories": []})"); }), "a.json: no list 'annotations'");
  expect_part(data_refusal([&] { read("[]"); }), "no list 'categories'");
  expect_part(data_refusal([&] { read("{"); }), "a.json");
  expect_part(
      data_refusal([&] {
        read(R"({"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]})");
      }),
      "two categories have the id 1");
}

}  // namespace
}  // namespace octet
